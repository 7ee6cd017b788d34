"""Workers on a running Ray cluster. Each starts a program and waits for it.

    ray_family.py RANKS PROGRAM [ARGUMENT...]
"""
import subprocess
import sys

import ray

ranks, program = int(sys.argv[1]), sys.argv[2:]


@ray.remote(num_cpus=1)
class Worker:
    def run(self):
        return subprocess.run(program, check=True).returncode


ray.init(log_to_driver=False, logging_level="ERROR")
workers = [Worker.remote() for _ in range(ranks)]
ray.get([w.run.remote() for w in workers])
