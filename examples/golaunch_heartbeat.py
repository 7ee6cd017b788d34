"""Reports this rank's progress to golaunch, for its monitor and --hang-timeout.

Copy this file: it needs only Python 3.

    from golaunch_heartbeat import beat

    for step, batch in enumerate(batches):
        train(batch)
        beat(step, len(batches))

A rank that has called beat once must call it again at least every --hang-timeout, because its
output then no longer counts as progress. Call beat at every step, so that golaunch can compare the
steps of ranks; a call costs one system call. If golaunch did not start the program, or the file
cannot be written, beat does nothing. docs/failures.md describes the protocol.
"""

import os

_file = None


def beat(step, total=0, text=""):
    """Reports that this rank has finished a step, which is 0 or more, with the total, if known, and
    a few words for people."""
    global _file
    path = os.environ.get("GOLAUNCH_HEARTBEAT_FILE")
    if not path:
        return
    line = f"{step} {total} {text}".encode()[:200]
    try:
        if _file is None:
            _file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(_file, line.ljust(200) + b"\n", 0)  # padded, so that no part of an older line is left
    except OSError:
        pass  # a full disk must not end a training that needs no disk
