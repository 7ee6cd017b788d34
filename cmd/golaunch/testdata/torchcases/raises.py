"""Rank 0 raises, and has torch record it; the others wait to be stopped."""
import os
import time

if os.environ["RANK"] != "0":
    time.sleep(1000)

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    raise ValueError("rank 0 is sad")


main()
