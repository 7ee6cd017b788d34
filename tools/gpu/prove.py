#!/usr/bin/env python3
"""Tests golaunch on a machine with an NVIDIA GPU and torch, and writes a report.

    python3 prove.py [--golaunch DIR] [--report FILE] [CHECK...]

`make gpu` packs it with both builds of golaunch. Each check is a function below: it runs the real
command, and raises AssertionError with the output if that is wrong. By default all checks run,
within 15 minutes together. For each check the report says whether it passed, failed or could not
run, and why.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))


class CannotRun(Exception):
    """This machine lacks a requirement of a check."""


class Machine:
    """The path of golaunch, and a check's part of the report."""

    def __init__(self, binaries, scratch, end):
        self.end = end
        self.golaunch = os.path.join(binaries, "golaunch")
        self.linked = os.path.join(binaries, "golaunch-cgo")
        self.scratch = scratch
        self.report = []

    def note(self, text):
        self.report.append(text.rstrip())

    def run(self, *command, code=0, limit=120, env=None, show=True, data=False):
        """Runs a command and returns its output: stdout if data is true, else both streams. The
        exit code must be code, unless code is None."""
        began = time.monotonic()
        limit = max(1.0, min(limit, self.end - began))
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=limit, cwd=self.scratch,
                                  env=dict(os.environ, **(env or {})))
        except subprocess.TimeoutExpired as late:
            text = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")
            self.note(f"$ {' '.join(command)}   # still running after {limit:.0f} s\n{clip(text)}")
            raise
        out = done.stdout.decode(errors="replace")
        text = done.stderr.decode(errors="replace") + out
        if show:
            took = time.monotonic() - began
            self.note(f"$ {' '.join(command)}   # exit code {done.returncode}, {took:.1f} s\n"
                      + clip(text))
        if code is not None and done.returncode != code:
            raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}, not {code}:\n"
                                 + clip(text))
        return out if data else text

    def job(self, *args, **options):
        return self.run(self.golaunch, *args, **options)

    def write(self, name, text):
        path = os.path.join(self.scratch, name)
        with open(path, "w") as f:
            f.write(text)
        return path


def clip(text, lines=40):
    kept = text.splitlines()
    if len(kept) > lines:
        kept = kept[: lines // 2] + [f"... {len(kept) - lines} lines ..."] + kept[-lines // 2 :]
    return "\n".join(line[:300] for line in kept)


def smi(*fields):
    if shutil.which("nvidia-smi") is None:
        raise CannotRun("there is no nvidia-smi")
    query = ["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
    done = subprocess.run(query, stdout=subprocess.PIPE, timeout=60, check=True)
    lines = [line for line in done.stdout.decode().splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    if not rows:
        raise CannotRun("nvidia-smi lists no GPU")
    return rows


def torch_on_cuda():
    program = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, timeout=300)
    if done.returncode != 0:
        raise CannotRun(f"{sys.executable} has no torch")
    version, cuda, usable = done.stdout.decode().split()
    if usable != "True":
        raise CannotRun(f"torch {version} cannot use CUDA here")
    return f"torch {version}, CUDA {cuda}"


def gpus(m):
    """Both builds report the GPUs and the driver that nvidia-smi reports."""
    want = dict(smi("uuid", "driver_version"))
    driver = next(iter(want.values()))
    for binary in (m.golaunch, m.linked):
        plan = json.loads(m.run(binary, "plan", "--gpus-per-node", "auto", "--json", data=True))
        got = sorted(rank["gpu_uuid"] for rank in plan["ranks"])
        assert got == sorted(want), f"{binary} has the GPUs {got}, nvidia-smi {sorted(want)}"
        versions = json.loads(m.run(binary, "doctor", "--json", code=None, data=True))["versions"]
        got = versions["driver"]
        assert got == driver, f"{binary} has the driver {got}, nvidia-smi {driver}"


def visibility(m):
    """A rank sees its own GPU, with --gpu-visibility and by UUID."""
    uuid = smi("uuid")[0][0]
    shown = ("import os; "
             "print('sees', os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['GOLAUNCH_GPU_UUID'])")
    for how in ("job", "own"):
        out = m.job("--gpus-per-node", "1", "--gpu-visibility", how, "--",
                    sys.executable, "-c", shown)
        assert uuid in out and re.search(r"sees (0|GPU-\S+) ", out), out
    out = m.job("--gpu-ids", uuid, "--", sys.executable, "-c", shown)
    assert uuid in out, out


def doctor(m):
    """doctor names the problems of this machine, and the checks that were impossible."""
    out = m.job("doctor", code=None)
    assert "panic" not in out


def nccl(m):
    """golaunch finds libnccl and times an all-reduce through purego."""
    smi("uuid")
    out = m.job("doctor", "--fabric", "--gpus-per-node", "1", code=None)
    assert "fabric-nccl" not in out and "over NCCL:" in out, out


ALLREDUCE = """
import os, torch, torch.distributed as dist
backend = os.environ["BACKEND"]
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
dist.init_process_group(backend)
x = torch.ones(1 << 20, device="cuda") * (dist.get_rank() + 1)
if backend == "gloo":
    x = x.cpu()
dist.all_reduce(x)
print("sum", int(x[0]), torch.cuda.get_device_name(), flush=True)
dist.destroy_process_group()
"""


def torch_nccl(m):
    """One rank uses torch's NCCL on the GPU."""
    m.note(torch_on_cuda())
    out = m.job("--gpus-per-node", "1", "--", sys.executable, m.write("allreduce.py", ALLREDUCE),
                env={"BACKEND": "nccl"})
    assert "sum 1 " in out, out


def torch_gloo(m):
    """Two ranks share the GPU, with gloo."""
    torch_on_cuda()
    out = m.job("--gpus-per-node", "1", "--gpus-per-rank", "0.5", "--",
                sys.executable, m.write("allreduce.py", ALLREDUCE), env={"BACKEND": "gloo"})
    assert out.count("sum 3 ") == 2, out


def restart(m):
    """A killed DDP job starts again and continues from its checkpoint."""
    torch_on_cuda()
    checkpoint = os.path.join(m.scratch, "ddp.pt")
    out = m.job("--gpus-per-node", "1", "--max-restarts", "1", "--backoff", "100ms", "--",
                sys.executable, os.path.join(HERE, "train.py"), "--steps", "60",
                "--checkpoint", checkpoint, "--die-at", "35", "--die-rank", "0", limit=300)
    assert "attempt 1: resumed at step 30" in out, out


def memory(m):
    """The memory of a killed rank is free before the next attempt."""
    torch_on_cuda()
    program = m.write("hold.py", """
import os, signal, torch
free, total = torch.cuda.mem_get_info()
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print("free", free >> 20, "of", total >> 20, "MiB in attempt", attempt, flush=True)
x = torch.empty(int(free * 0.8), dtype=torch.uint8, device="cuda").zero_()
torch.cuda.synchronize()
if attempt == "0":
    os.kill(os.getpid(), signal.SIGKILL)
""")
    out = m.job("--gpus-per-node", "1", "--max-restarts", "1", "--backoff", "0s", "--",
                sys.executable, program, limit=300)
    before, after = (int(n) for n in re.findall(r"free (\d+) of", out))
    assert after > 0.95 * before, f"{before} MiB were free in attempt 0, {after} in attempt 1"


def preload(m):
    """A rank that was forked from a process with torch uses CUDA like any other."""
    torch_on_cuda()
    for how in ("none", "torch"):
        args = ["--preload", how] + (["--preload-strict"] if how != "none" else [])
        out = m.job("--gpus-per-node", "1", *args, "--", sys.executable,
                    m.write("allreduce.py", ALLREDUCE), env={"BACKEND": "nccl"}, limit=300)
        assert "sum 1 " in out, out


def stuck(m):
    """A kernel that does not end is reported as a hang, and its rank is stopped."""
    torch_on_cuda()
    program = m.write("stuck.py", """
import torch
torch.cuda._sleep(1 << 62)
torch.cuda.synchronize()
""")
    m.job("--gpus-per-node", "1", "--hang-timeout", "30s", "--max-restarts", "0", "--grace", "5s",
          "--", sys.executable, program, code=124, limit=300)


def xid(m):
    """A failed assertion in a kernel is reported as an error of the GPU, by the job and by explain."""
    torch_on_cuda()
    program = m.write("fault.py", """
import torch
x = torch.zeros(4, device="cuda")
print(x[torch.tensor([1 << 40], device="cuda")], flush=True)
""")
    logs = os.path.join(m.scratch, "logs")
    out = m.job("--gpus-per-node", "1", "--max-restarts", "0", "--log-dir", logs, "--",
                sys.executable, program, code=1, limit=300)
    assert "device-assert" in out, "the job's report does not name the cause device-assert"
    out = m.job("explain", logs)
    assert "device-assert" in out, "golaunch explain does not name the cause device-assert"
    bundles = [os.path.join(at, name) for at, _, names in os.walk(logs)
               for name in names if name.endswith((".tar.gz", ".tgz"))]
    assert bundles, f"there is no bundle below {logs}"
    files = m.run("tar", "tzf", bundles[0])
    assert "node/nvidia-smi.txt" in files, "the bundle has no output of nvidia-smi"


def top(m):
    """The monitor shows the GPU's use, memory and power of a running rank."""
    torch_on_cuda()
    program = m.write("busy.py", """
import time, torch
x = torch.randn(4096, 4096, device="cuda")
end = time.time() + 25
while time.time() < end:
    x = (x @ x).clamp(-1, 1)
    torch.cuda.synchronize()
""")
    command = [m.golaunch, "--gpus-per-node", "1", "--job-id", "busy", "--",
               sys.executable, program]
    job = subprocess.Popen(command, cwd=m.scratch, start_new_session=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(20):
            time.sleep(1)
            shown = m.job("top", "busy", "--once", code=None, show=False)
            if re.search(r"\d+W", shown) and re.search(r"\d+%", shown):
                m.note(shown)
                return
        raise AssertionError("golaunch top shows no power or no use after 20 s:\n" + shown)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGTERM)
        job.wait(60)


def ray(m):
    """Programs written for Ray use the GPU: an actor alone, two that share it, and a trainer."""
    torch_on_cuda()
    if importlib.util.find_spec("cloudpickle") is None:
        raise CannotRun(f"{sys.executable} has no cloudpickle")
    program = m.write("actors.py", """
import ray, torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, get_device

ray.init()
print("the session has", ray.cluster_resources().get("GPU"), "GPU")

@ray.remote
class Adder:
    def add(self, n):
        assert ray.get_gpu_ids() == [0], ray.get_gpu_ids()
        return int((torch.ones(4, device="cuda") * n).sum())

alone = Adder.options(num_gpus=1).remote()
print("alone", ray.get(alone.add.remote(2)))
ray.kill(alone)
pair = [Adder.options(num_gpus=0.5).remote() for _ in range(2)]
print("pair", ray.get([a.add.remote(n) for n, a in enumerate(pair, 1)]))
for a in pair:
    ray.kill(a)

def train():
    x = torch.ones(4, device=get_device())
    torch.distributed.all_reduce(x)
    print("trainer", torch.distributed.get_backend(), get_device(), int(x.sum()), flush=True)

TorchTrainer(train, scaling_config=ScalingConfig(num_workers=1, use_gpu=True)).fit()
""")
    golaunch = {"GOLAUNCH_BINARY": m.golaunch, "PYTHONPATH": os.path.join(HERE, "python")}
    out = m.run(sys.executable, program, env=golaunch, limit=300)
    for line in ("the session has 1.0 GPU", "alone 8", "pair [4, 8]", "trainer nccl cuda:0 4"):
        assert line in out, f"the program does not print {line!r}"


CHECKS = [gpus, visibility, doctor, nccl, torch_nccl, torch_gloo, restart, memory, preload, stuck,
          xid, top, ray]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golaunch", default=HERE, help="directory of golaunch and golaunch-cgo")
    parser.add_argument("--report", default="gpu.md", help="file to write (gpu.md)")
    names = [check.__name__ for check in CHECKS]
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(names))
    args = parser.parse_args()
    unknown = set(args.checks) - set(names)
    if unknown:
        parser.error(f"there is no check {', '.join(sorted(unknown))}: {', '.join(names)}")
    rows, details, failed, stopped = [], [], 0, False
    end = time.monotonic() + 15 * 60
    for check in CHECKS:
        if stopped or args.checks and check.__name__ not in args.checks:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="golaunch-gpu-") as scratch:
            m = Machine(args.golaunch, scratch, end)
            result = "passed"
            try:
                check(m)
            except KeyboardInterrupt:
                result, stopped = "stopped by ^C", True
            except CannotRun as reason:
                result = f"could not run: {str(reason).splitlines()[0]}"
            except Exception as error:  # the other checks and the report go on
                result, failed = "**failed**", failed + 1
                m.note("".join(traceback.format_exception_only(type(error), error)))
        took = time.monotonic() - began
        print(f"{check.__name__}: {result} ({took:.1f} s)", flush=True)
        rows.append(f"| `{check.__name__}` | {check.__doc__} | {result} | {took:.1f} |")
        details.append(f"## {check.__name__}\n\n{check.__doc__}\n\n```\n"
                       + "\n\n".join(m.report or ["nothing was run"]) + "\n```\n")
    version = subprocess.run([os.path.join(args.golaunch, "golaunch"), "version"],
                             stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    devices = "no NVIDIA driver"
    if shutil.which("nvidia-smi"):
        listing = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE).stdout
        devices = listing.decode().strip()
    with open(args.report, "w") as f:
        f.write(f"# golaunch on a GPU\n\n{version}, {time.strftime('%Y-%m-%d', time.gmtime())}, "
                f"{platform.platform()}, Python {platform.python_version()}:\n\n    "
                + devices.replace("\n", "\n    ")
                + "\n\n| check | | result | seconds |\n| --- | --- | --- | --- |\n"
                + "\n".join(rows) + "\n\n" + "\n".join(details))
    print(f"the report is in {args.report}")
    return 128 + signal.SIGINT if stopped else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
