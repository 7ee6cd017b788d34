"""Where the golaunch command is."""

import os
import shutil
import sys

from .errors import GolaunchError


def find_binary():
    """The path of the golaunch command: GOLAUNCH_BINARY, the one beside this Python, or the one in PATH."""
    named = os.environ.get("GOLAUNCH_BINARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(sys.executable or ""), "golaunch")
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("golaunch")
    if found is None:
        raise GolaunchError(f"there is no golaunch command beside {sys.executable} or in PATH: install golaunch, or set GOLAUNCH_BINARY")
    return found
