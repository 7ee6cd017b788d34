"""The costs of a group of workers, with golaunch and with Ray, in turn, on this machine.

    python python/bench/groups.py [--ray] [--runs 3] [--calls 500] [--megabytes 512] [--workers 8]

It needs NumPy, and with --ray the package ray in the same Python. golaunch's command is found as
golaunch.find_binary does. Medians of all runs are printed.
"""

import argparse
import os
import signal
import statistics
import sys
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


class Worker:
    def nothing(self):
        return None

    def give_back(self, array):
        return array

    def take(self, array):
        return array[0]

    def pid(self):
        return os.getpid()

    def sleep(self):
        time.sleep(600)


class Golaunch:
    def __init__(self, workers):
        from golaunch import VirtualCluster

        self.cluster, self.n = VirtualCluster([workers]), workers

    def start(self):
        from golaunch import WorkerGroup

        self.group = WorkerGroup(self.cluster, Worker, show_output=False)

    def call_all(self):
        self.group.run_all_workers_single_data("nothing").result(60)

    def give_back(self, array):
        return self.group.run_single_worker_single_data("give_back", 0, array).result(300)

    def take(self, array, all_of_them):
        if all_of_them:
            self.group.run_all_workers_single_data("take", array).result(300)
        else:
            self.group.run_single_worker_single_data("take", 0, array).result(300)

    def revive(self):
        self.group.restart_failed_workers(60)

    def dying(self, rank):
        """The pid of a worker in a call, and the object that waits for the call."""
        self.revive()
        pid = self.group.run_single_worker_single_data("pid", rank).result(60)
        return pid, self.group.run_single_worker_single_data("sleep", rank).result

    def end(self):
        self.cluster.close()


class Ray:
    def __init__(self, workers):
        import ray

        self.ray, self.n = ray, workers
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="error")

    def start(self):
        actor = self.ray.remote(Worker)
        self.actors = [actor.remote() for _ in range(self.n)]
        self.call_all()

    def call_all(self):
        self.ray.get([a.nothing.remote() for a in self.actors])

    def give_back(self, array):
        return self.ray.get(self.actors[0].give_back.remote(array))

    def take(self, array, all_of_them):
        one = self.ray.put(array)
        self.ray.get([a.take.remote(one) for a in (self.actors if all_of_them else self.actors[:1])])

    def revive(self):
        for a in self.actors:
            self.ray.kill(a)
        self.start()

    def dying(self, rank):
        pid = self.ray.get(self.actors[rank].pid.remote())
        called = self.actors[rank].sleep.remote()
        return pid, lambda: self.ray.get(called)

    def end(self):
        self.ray.shutdown()


def timed(do, *args):
    began = time.perf_counter()
    do(*args)
    return time.perf_counter() - began


def heard(p, rank):
    """Kills a worker in a call, and waits for the exception of its caller."""
    pid, wait = p.dying(rank)
    time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    began = time.perf_counter()
    try:
        wait()
    except Exception:
        return time.perf_counter() - began
    raise AssertionError("a killed worker has returned")


def measure(peer, args):
    seconds = {}
    began = time.perf_counter()
    p = peer(args.workers)
    seconds["a cluster on this machine"] = time.perf_counter() - began
    try:
        seconds[f"{args.workers} workers ready"] = timed(p.start)
        calls = sorted(timed(p.call_all) for _ in range(args.calls))
        seconds[f"a call of all {args.workers} and back, median"] = statistics.median(calls)
        seconds[f"a call of all {args.workers} and back, 99 %"] = calls[int(len(calls) * 0.99)]
        seconds["a worker is killed, and its caller hears"] = statistics.median(heard(p, rank) for rank in range(min(2, args.workers)))
        p.revive()
        array = numpy.random.default_rng(0).random(args.megabytes * 2**20 // 8)
        for name, do, more in (("one worker and back", p.give_back, ()), ("one worker", p.take, (False,)), (f"all {args.workers}", p.take, (True,))):
            seconds[f"{args.megabytes} MiB to {name}"] = statistics.median(timed(do, array, *more) for _ in range(5))
    finally:
        p.end()
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray", action="store_true")
    for name, usual in (("runs", 3), ("calls", 500), ("megabytes", 512), ("workers", 8)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    args = parser.parse_args()
    peers = [Golaunch] + [Ray] * args.ray
    all_of_them = {peer: [] for peer in peers}
    for _ in range(args.runs):
        for peer in peers:
            all_of_them[peer].append(measure(peer, args))
    print(f"load average {os.getloadavg()[0]:.1f}; medians of {args.runs} runs")
    for name in all_of_them[Golaunch][0]:
        values = "".join(f"  {peer.__name__} {statistics.median(s[name] for s in runs) * 1000:10.2f} ms" for peer, runs in all_of_them.items())
        print(f"{name:42}{values}")


if __name__ == "__main__":
    main()
