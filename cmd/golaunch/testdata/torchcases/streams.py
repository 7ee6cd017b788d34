"""Writes to both streams: from Python, from C and from a program that it starts."""
import ctypes
import os
import subprocess
import sys

libc = ctypes.CDLL(None)
for n, stream in ((1, sys.stdout), (2, sys.stderr)):
    print("python", n, file=stream, flush=True)
    c = ctypes.c_void_p.in_dll(libc, ("stdout", "stderr")[n - 1])
    libc.fprintf(c, b"c %d\n", n)
    libc.fflush(c)
    subprocess.run(["sh", "-c", f"echo program {n} >&{n}"], check=True)
