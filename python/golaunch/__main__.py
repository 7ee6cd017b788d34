"""`python -m golaunch` is the golaunch command."""

import os
import sys

from .binary import find_binary
from .errors import GolaunchError


def main():
    try:
        path = find_binary()
        os.execv(path, [path, *sys.argv[1:]])
    except (GolaunchError, OSError) as error:
        sys.exit(f"golaunch: cannot run the golaunch command: {error}")


if __name__ == "__main__":
    main()
