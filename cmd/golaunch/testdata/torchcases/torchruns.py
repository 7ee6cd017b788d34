"""Runs torchrun's command line many times with one import of torch, which takes seconds.

Each line of the standard input is a JSON object. One with "args" starts torchrun, in a process, a directory and an environment of its
own; its output goes to the files "out" and "err". One with "signal" sends that process a signal. The first line of the answer has
torch's version; each further one says how a torchrun ended. When the input ends, all that is left ends with it.
"""
import ctypes
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import traceback

PR_SET_CHILD_SUBREAPER = 36


def torchrun(main, order):
    """Is torchrun, in a process that was forked for it."""
    os.setsid()
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["dir"])
    tempfile.tempdir = None
    sys.stdout.reconfigure(line_buffering=True)
    for fd, name, flags in ((0, os.devnull, os.O_RDONLY), (1, order["out"], os.O_WRONLY | os.O_CREAT), (2, order["err"], os.O_WRONLY | os.O_CREAT)):
        file = os.open(name, flags, 0o600)
        os.dup2(file, fd)
        os.close(file)
    sys.argv = ["torchrun", *order["args"]]
    code = 0
    try:
        main(order["args"])
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def children():
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as f:
            yield from map(int, f.read().split())


def serve(mains):
    running = {}  # by the file descriptor of the process
    poll = select.poll()
    poll.register(0, select.POLLIN)
    rest = b""
    while True:
        for fd, _ in poll.poll():
            if fd:
                number, pid = running.pop(fd)
                _, status = os.waitpid(pid, 0)
                poll.unregister(fd)
                os.close(fd)
                print(json.dumps({"id": number, "code": os.waitstatus_to_exitcode(status)}), flush=True)
                continue
            got = os.read(0, 1 << 16)
            if not got:
                return
            *lines, rest = (rest + got).split(b"\n")
            for order in map(json.loads, lines):
                if "signal" in order:
                    for number, pid in running.values():
                        if number == order["id"]:
                            os.kill(pid, order["signal"])
                    continue
                pid = os.fork()
                if pid == 0:
                    torchrun(mains[order["module"]], order)
                fd = os.pidfd_open(pid)
                running[fd] = order["id"], pid
                poll.register(fd, select.POLLIN)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a torchrun leaves behind comes here
    import torch

    import libuv

    mains = {name: importlib.import_module(name).main for name in ("torch.distributed.run", "torch.distributed.launch")}
    libuv.do_without()
    print(json.dumps({"torch": torch.__version__}), flush=True)
    serve(mains)
    while left := list(children()):
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
