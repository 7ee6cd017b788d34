"""Remote functions: arguments, references, errors, retries, options."""

import os
import time

import ray


def say(*what):
    print("=", *what, flush=True)


ray.init(num_cpus=4, log_to_driver=False)


@ray.remote
def add(a, b=1):
    return a + b


@ray.remote
def total(values):
    return sum(ray.get(values))


@ray.remote(num_returns=2)
def pair():
    return 1, 2


@ray.remote
def fail(text):
    raise ValueError(text)


@ray.remote
def nested(n):
    return n if n == 0 else ray.get(nested.remote(n - 1)) + 1


@ray.remote
def kind(value):
    return type(value).__name__


@ray.remote
def kinds(values):
    return [type(v).__name__ for v in values]


x = add.remote(1)
say(ray.get(x), ray.get([x, add.remote(x, 5), add.remote(2, b=x)]))
say(ray.get(total.remote([add.remote(i) for i in range(5)])))
say(ray.get(list(pair.remote())), ray.get(nested.remote(4)))
say(ray.get(kind.remote(x)), ray.get(kinds.remote([x])))
say(ray.get(add.options(name="other", num_cpus=2).remote(1, 2)))
say(ray.get(ray.put({"a": [1, 2]})), ray.get(add.remote(ray.put(3))))

for what in (fail.remote("bad"), add.remote(fail.remote("before"), 1)):
    try:
        ray.get(what)
    except ValueError as error:
        say(type(error).__name__, isinstance(error, ray.exceptions.RayTaskError), error.args, type(error.cause).__name__, str(error.cause))
        say("ValueError:" in str(error), "ray::fail()" in str(error))


@ray.remote
def outer():
    return ray.get(fail.remote("deep"))


try:
    ray.get(outer.remote())
except ray.exceptions.RayTaskError as error:
    say(type(error).__name__, type(error.cause).__name__, "ray::outer()" in str(error), "ray::fail()" in str(error))

# results of the wrong number
try:
    ray.get(pair.options(num_returns=3).remote())
except ray.exceptions.RayTaskError as error:
    say(type(error).__name__, str(error.cause))
say(add.options(num_returns=0).remote(1))

# a worker that dies
marker = f"/tmp/ray-program-{os.getpid()}"


@ray.remote(max_retries=0)
def die():
    os._exit(1)


@ray.remote(max_retries=2)
def die_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(1)
    return "second"


try:
    ray.get(die.remote())
except ray.exceptions.WorkerCrashedError as error:
    say(type(error).__name__)
say(ray.get(die_once.remote(marker)))
os.unlink(marker)


@ray.remote(max_retries=3, retry_exceptions=[KeyError])
def flaky(path, error):
    with open(path, "a") as f:
        f.write("x")
    if os.path.getsize(path) < 3:
        raise error
    return os.path.getsize(path)


say(ray.get(flaky.remote(marker, KeyError("again"))))
os.unlink(marker)
try:
    ray.get(flaky.remote(marker, TypeError("not again")))
except TypeError as error:
    say("TypeError", os.path.getsize(marker))
os.unlink(marker)

# waiting


@ray.remote
def sleep(seconds):
    time.sleep(seconds)
    return seconds


slow, fast = sleep.remote(30), sleep.remote(0)
ready, rest = ray.wait([slow, fast], num_returns=1)
say(ready == [fast], rest == [slow])
say([len(part) for part in ray.wait([slow], timeout=0)])
try:
    ray.get(slow, timeout=0.1)
except ray.exceptions.GetTimeoutError as error:
    say(type(error).__name__, isinstance(error, TimeoutError))
ray.cancel(slow)
try:
    ray.get(slow)
except ray.exceptions.TaskCancelledError as error:
    say(type(error).__name__)
forced = sleep.remote(30)
ray.wait([forced], timeout=0.5)
ray.cancel(forced, force=True)
try:
    ray.get(forced)
except (ray.exceptions.TaskCancelledError, ray.exceptions.WorkerCrashedError) as error:
    say(isinstance(error, ray.exceptions.RayError))

# generators


@ray.remote
def count(n):
    for i in range(n):
        yield i


@ray.remote
def breaks():
    yield 1
    raise ValueError("broken")


say([ray.get(ref) for ref in count.remote(4)])
got = []
try:
    for ref in breaks.remote():
        got.append(ray.get(ref))
except ValueError as error:
    say(got, type(error).__name__)

# closures and lambdas
base = 10
say(ray.get(ray.remote(lambda v: v + base).remote(5)))


class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return type(other) is type(self) and self.x == other.x


@ray.remote
def move(p):
    return Point(p.x + 1)


say(ray.get(move.remote(Point(1))) == Point(2))


class Stubborn(Exception):
    def __init__(self, a, b):
        super().__init__("stubborn")
        self.lock = __import__("threading").Lock()


@ray.remote
def stubborn():
    raise Stubborn(1, 2)


try:
    ray.get(stubborn.remote())
except ray.exceptions.RayTaskError as error:
    say("stubborn" in str(error))

# wrong uses
for wrong in (lambda: add(1), lambda: add.options(nonsense=1), lambda: ray.get(1), lambda: ray.get([1]), lambda: ray.wait(x), lambda: ray.wait([x, x]),
              lambda: ray.put(x), lambda: ray.init(), lambda: ray.wait([x], num_returns=2), lambda: ray.remote(num_cpus=-1)(print)):
    try:
        wrong()
        say("no error")
    except Exception as error:
        say(type(error).__name__)
say(ray.is_initialized())
ray.shutdown()
say(ray.is_initialized())
