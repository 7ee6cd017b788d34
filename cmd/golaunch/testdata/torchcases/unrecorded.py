"""Rank 0 raises what nothing here records; the others wait to be stopped."""
import os
import time

if os.environ["RANK"] != "0":
    time.sleep(1000)
raise ValueError("rank 0 is sad")
