echo $$
exec sleep 1000
