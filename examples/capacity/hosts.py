#!/usr/bin/env python3
"""A provider of nodes for `golaunch coordinator --capacity`: a pool of hosts.

    exec: [./hosts.py, DIRECTORY, "ssh n1", "ssh n2"]

Each word after the directory is how a command runs on one host. A node is an agent there, in the
foreground of that command, and the directory has a file for each. golaunch calls one operation at a
time for each kind of node; see docs/capacity.md.
"""

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


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def nodes():
    """The nodes whose command runs, each with the number of its host."""
    running = {}
    for tag in os.listdir(directory):
        with open(path(tag)) as f:
            pid, host = map(int, f.read().split())
        if alive(pid):
            running[tag] = (pid, host)
        else:
            os.remove(path(tag))
    return running


def create(tag, agent):
    running = nodes()
    if tag in running:
        return
    free = sorted(set(range(len(hosts))) - {host for _, host in running.values()})
    if not free:
        sys.exit(f"all {len(hosts)} hosts are in use")
    process = subprocess.Popen(
        shlex.split(hosts[free[0]]) + agent,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )
    with open(path(tag), "w") as f:
        f.write(f"{process.pid} {free[0]}")


def delete(tag):
    pid, _ = nodes().get(tag, (0, 0))
    if not pid:
        return
    os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while alive(pid):
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
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
    print(json.dumps({"nodes": [{"tag": tag, "state": f"on host {host}"} for tag, (_, host) in running.items()]}))
else:
    sys.exit(f"{operation} is not known")
