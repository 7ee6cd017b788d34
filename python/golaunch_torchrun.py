"""Runs golaunch where torchrun is called, by its own script or as `python -m torch.distributed.run`.

golaunch_torchrun.pth has each Python of this environment import it when it starts, before it does what it was called for. torch's files stay as they are.
"""

import os
import sys

# The options of Python that have an argument of their own.
_WITH_ARGUMENT = {"--check-hash-based-pycs"}


def _asked(words, scripts):
    """The arguments for torchrun in Python's own command line; None if it was called for something else."""
    words = list(words[1:])
    while words:
        word = words.pop(0)
        if word == "-" or not word.startswith("-"):
            return words if word == os.path.join(scripts, "torchrun") else None
        if word.startswith("--"):
            del words[:word in _WITH_ARGUMENT]
            continue
        for i, letter in enumerate(word[1:], 2):  # options of one letter may stand together: -um MODULE
            if letter in "cmWX":
                value = word[i:] or (words.pop(0) if words else "")
                if letter == "c":
                    return None
                if letter == "m":
                    return words if value == "torch.distributed.run" else None
                break
    return None


def _instead():
    with open("/proc/self/cmdline", "rb") as f:  # sys.argv is not there yet, and sys.orig_argv came with 3.10
        words = [os.fsdecode(w) for w in f.read().split(b"\0")[:-1]]
    if not any("torch" in w for w in words[1:]):
        return
    scripts = os.path.dirname(sys.executable or "")
    args = _asked(words, scripts)
    if args is None:
        return
    from golaunch.binary import find_binary

    # By this name golaunch is torchrun, and knows the Python that is beside it.
    os.execv(find_binary(), [os.path.join(scripts, "torchrun"), *args])


try:
    _instead()
except Exception as error:  # what Python was called for goes on, with torch's own torchrun
    print(f"golaunch-torchrun: torchrun was not replaced: {error}", file=sys.stderr)
