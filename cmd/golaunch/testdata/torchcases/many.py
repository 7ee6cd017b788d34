"""Writes many lines, from Python or, with its buffer, from C."""
import ctypes
import sys

how, count = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None)
for i in range(count):
    if how == "c":
        libc.printf(b"c:%d\n", i)
    else:
        print(f"python:{i}")
libc.fflush(None)
