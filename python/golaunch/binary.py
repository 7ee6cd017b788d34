"""Where the golaunch command is."""

import os
import shutil
import sys
import sysconfig

from .errors import GolaunchError


def find_binary():
    """The path of the golaunch command: GOLAUNCH_BINARY, or the command installed with this package
    or beside this Python, or the command in PATH.
    """
    named = os.environ.get("GOLAUNCH_BINARY")
    if named:
        return named
    for scripts in _scripts():
        found = os.path.join(scripts, "golaunch")
        if os.access(found, os.X_OK) and not os.path.isdir(found):
            return found
    found = shutil.which("golaunch")
    if found is None:
        raise GolaunchError(f"there is no golaunch command beside {sys.executable} or in PATH: install golaunch, or set GOLAUNCH_BINARY")
    return found


def _scripts():
    """The directories in which pip puts commands: of this environment, of a --target or --prefix,
    or of the user.
    """
    yield os.path.dirname(sys.executable or "")
    yield sysconfig.get_path("scripts")
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    yield os.path.join(home, "bin")
    yield os.path.join(home, "..", "..", "..", "bin")  # PREFIX/lib/pythonX.Y/site-packages
    yield sysconfig.get_path("scripts", "posix_user")
