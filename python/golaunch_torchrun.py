"""Runs golaunch where torchrun is called, by torchrun's own script or as `python -m
torch.distributed.run`.

golaunch_torchrun.pth makes each Python of this environment import this module at its start, before
its real work. torch's files stay unchanged.
"""

import os
import sys

# The options of Python that have an argument of their own.
_WITH_ARGUMENT = {"--check-hash-based-pycs"}


def _asked(words, scripts):
    """The arguments for torchrun in Python's own command line; None if it is not for torchrun."""
    words = list(words[1:])
    while words:
        word = words.pop(0)
        if word == "-" or not word.startswith("-"):
            return words if os.path.basename(word) == "torchrun" and os.path.realpath(os.path.dirname(word)) in scripts else None
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


def _command_line():
    """The command line of this process: sys.argv does not exist yet."""
    if hasattr(sys, "orig_argv"):  # 3.10
        return sys.orig_argv
    try:
        with open("/proc/self/cmdline", "rb") as f:
            return [os.fsdecode(w) for w in f.read().split(b"\0")[:-1]]
    except OSError:
        return []


def _scripts():
    """The directories in which pip puts torchrun."""
    import sysconfig

    named = [os.path.dirname(sys.executable or ""), sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user"), "/usr/local/bin"]
    return {os.path.realpath(directory) for directory in named if directory}


def _instead():
    words = _command_line()
    if not any("torch" in w for w in words[1:]):
        return
    args = _asked(words, _scripts())
    if args is None:
        return
    try:
        from golaunch.binary import find_binary

        os.environ.setdefault("PYTHON_EXEC", sys.executable)  # the ranks' Python, as for torchrun
        os.execv(find_binary(), ["torchrun", *args])
    except Exception as error:  # torch's own torchrun goes on
        print(f"golaunch-torchrun: torchrun was not replaced: {error}", file=sys.stderr)


_instead()
