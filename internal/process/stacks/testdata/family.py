"""A process with three children: one loads data, one does something else, and one is not Python."""
import multiprocessing
import subprocess
import sys


def something(queue, ready):
    ready.release()
    queue.get()


context = multiprocessing.get_context("fork")
queue, ready = context.Queue(), context.Semaphore(0)
loop = compile("def _worker_loop(queue, ready):\n    ready.release()\n    queue.get()\n", "/venv/torch/utils/data/_utils/worker.py", "exec")
names = {}
exec(loop, names)
children = [context.Process(target=target, args=(queue, ready)) for target in (names["_worker_loop"], something)]
for child in children:
    child.start()
for _ in children:
    ready.acquire()
sleeper = subprocess.Popen(["sleep", "1000"])
print("ready", flush=True)
sys.stdin.read()
for child in children:
    queue.put(None)
for child in children:
    child.join()
sleeper.kill()
sleeper.wait()
