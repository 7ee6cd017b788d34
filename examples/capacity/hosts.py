#!/usr/bin/env python3
"""A provider of nodes for `golaunch coordinator --capacity`: a pool of hosts.

    exec: [./hosts.py, DIRECTORY, "ssh n1", "ssh n2"]

Each word after the directory is the beginning of a command that runs the rest of its words on one
host. A node is an agent that runs in the foreground of such a command. The directory has a file
for each node. golaunch calls one operation at a time for each kind of node; see docs/capacity.md.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time

directory, hosts = sys.argv[1], sys.argv[2:]
request = json.load(sys.stdin)
os.makedirs(directory, exist_ok=True)


def path(tag):
    return os.path.join(directory, tag)


def started(pid):
    """Returns when a process started, in the kernel's ticks; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def alive(pid, start):
    """Returns whether a process still runs. Another process may have got its pid since."""
    return started(pid) == start


def nodes():
    """The nodes whose command runs: the process, its start, and the number of its host."""
    running = {}
    for tag in os.listdir(directory):
        if tag.startswith("."):
            continue
        with open(path(tag)) as f:
            pid, start, host = map(int, f.read().split())
        if alive(pid, start):
            running[tag] = (pid, start, host)
        else:
            os.remove(path(tag))
    return running


def create(tag, agent):
    running = nodes()
    if tag in running:
        return
    free = sorted(set(range(len(hosts))) - {host for _, _, host in running.values()})
    if not free:
        sys.exit(f"all {len(hosts)} hosts are in use")
    process = subprocess.Popen(
        shlex.split(hosts[free[0]]) + agent,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )
    with open(path("." + tag), "w") as f:
        f.write(f"{process.pid} {started(process.pid) or 0} {free[0]}")
    os.replace(path("." + tag), path(tag))


def send(pid, start, number):
    if alive(pid, start):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)


def delete(tag):
    running = nodes()
    if tag not in running:
        return
    pid, start, _ = running[tag]
    send(pid, start, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while alive(pid, start):
        if time.monotonic() > deadline:
            send(pid, start, signal.SIGKILL)
        time.sleep(0.1)


operation = request["operation"]
if operation == "create":
    for node in request["nodes"]:
        create(node["tag"], node["agent"])
elif operation == "delete":
    for node in request["nodes"]:
        delete(node["tag"])
elif operation == "list":
    running = nodes()
    print(json.dumps({"nodes": [{"tag": tag, "state": f"on host {host}"} for tag, (_, _, host) in running.items()]}))
else:
    sys.exit(f"{operation} is not known")
