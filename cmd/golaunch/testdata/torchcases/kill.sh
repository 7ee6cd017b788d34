kill -"$1" $$
