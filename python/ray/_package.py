"""The working directory of a program, which travels to the processes of its tasks and actors."""

import fcntl
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

_EMPTY = 4 * tarfile.BLOCKSIZE  # bytes of an archive without files: the global header, the member that tarfile wants after it, and the end


def read(directory):
    """The archive of a directory."""
    from golaunch.binary import find_binary

    said = subprocess.run([find_binary(), "_workspace", directory], stdin=subprocess.DEVNULL, capture_output=True)
    if said.returncode != 0:
        raise ValueError(f"runtime_env['working_dir']: {said.stderr.decode(errors='replace').strip().removeprefix('golaunch: ')}")
    return said.stdout


def put(core, archive):
    """Stores an archive as an object of this program, for the environment of its processes."""
    ref = core.package = core.put(archive)  # the object lives as long as the program
    return {"id": hashlib.sha256(archive).hexdigest(), "ref": pickle.dumps(ref).hex()}


def enter(core, package, kept):
    """Enters the node's copy of the directory. Each session makes one copy of each content. A lock
    shows that the copy is in use while this process lives.
    """
    os.makedirs(kept, mode=0o700, exist_ok=True)
    path = os.path.join(kept, f"{core.session}.{package['id'][:16]}")
    while (lock := _use(path)) is None:
        _make(core, package, kept, path)
    core.directory, core.directory_lock = path, lock
    os.chdir(path)
    sys.path.insert(0, path)


def _use(path):
    """Locks a copy, so that it is not removed; None if there is no such copy."""
    fd = None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    except FileNotFoundError:  # or the copy was removed before it was locked
        pass
    if fd is not None:
        os.close(fd)
    return None


def _make(core, package, kept, path):
    archive = core.get([pickle.loads(bytes.fromhex(package["ref"]))])[0]
    whole = os.open(kept, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(whole, fcntl.LOCK_EX)
        for name in os.listdir(kept):
            _remove_unused(kept, name)
        part = tempfile.mkdtemp(prefix=os.path.basename(path) + ".", dir=kept)
        lock = _use(part)
    finally:
        os.close(whole)
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
        os.close(lock)


def _remove_unused(kept, name):
    """Removes the copy of a session that is over. A session in a container that shares the
    directory is not visible here, but its processes hold the lock.
    """
    if _cluster.hosts_here(name.partition(".")[0]):
        return
    try:
        fd = os.open(os.path.join(kept, name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # another host has just removed it
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(os.path.join(kept, name), ignore_errors=True)
    except OSError:  # the copy is in use, or the file system has no locks
        pass
    finally:
        os.close(fd)


def _fresh(tar):
    """Makes the files' times as new as the copy."""
    for member in tar:
        member.mtime = time.time()
        yield member
