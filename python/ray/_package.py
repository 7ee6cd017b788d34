"""The working directory of a program, which travels to the processes of its tasks and actors."""

import hashlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

from . import _cluster

_EMPTY = 4 * tarfile.BLOCKSIZE  # an archive without files: a header for all, after which tarfile wants one, and the end


def read(directory):
    """The archive of a directory."""
    from golaunch.binary import find_binary

    said = subprocess.run([find_binary(), "_workspace", directory], stdin=subprocess.DEVNULL, capture_output=True)
    if said.returncode != 0:
        raise ValueError(f"runtime_env['working_dir']: {said.stderr.decode(errors='replace').strip().removeprefix('golaunch: ')}")
    return said.stdout


def put(core, archive):
    """An archive as an object of this program, for the environment of its processes."""
    ref = core.package = core.put(archive)  # it lives as long as the program
    return {"id": hashlib.sha256(archive).hexdigest(), "ref": pickle.dumps(ref).hex()}


def enter(core, package, kept):
    """Goes to the node's copy of the directory, which is made once for each session and content."""
    os.makedirs(kept, mode=0o700, exist_ok=True)
    path = os.path.join(kept, f"{core.session}.{package['id'][:16]}")
    if not os.path.isdir(path):
        _make(core, package, kept, path)
    core.directory = path
    os.chdir(path)
    sys.path.insert(0, path)


def _make(core, package, kept, path):
    for name in os.listdir(kept):  # those of sessions that are over
        if not _cluster.hosts_here(name.partition(".")[0]):
            shutil.rmtree(os.path.join(kept, name), ignore_errors=True)
    archive = core.get([pickle.loads(bytes.fromhex(package["ref"]))])[0]
    part = tempfile.mkdtemp(prefix=os.path.basename(path) + ".", dir=kept)
    try:
        # Whoever is in the session may run anything here, so its archives are trusted.
        trust = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
        if len(archive) > _EMPTY:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(part, _fresh(tar), **trust)
        os.rename(part, path)
    except OSError:
        if not os.path.isdir(path):  # another process was faster
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _fresh(tar):
    """Files are as new as the copy."""
    for member in tar:
        member.mtime = time.time()
        yield member
