"""NumPy's arrays, which tasks share without a copy."""

import numpy as np
import ray


def say(*what):
    print("=", *what, flush=True)


ray.init(num_cpus=2, log_to_driver=False)
array = np.arange(1 << 20, dtype=np.float64)
ref = ray.put(array)
got = ray.get(ref)
say(got.flags.writeable, (got == array).all())


@ray.remote
def work(a):
    return a.flags.writeable, float(a.sum())


@ray.remote
def make(n):
    return np.ones(n), np.zeros(3)


say(ray.get(work.remote(ref)), ray.get(work.remote(array)), ray.get(work.remote(np.ones(3))))
big, small = ray.get(make.remote(1 << 18))
say(big.flags.writeable, big.sum(), small)
a, b = ray.get([make.options(num_returns=2).remote(1 << 18)[i] for i in (0, 1)])
say(a.shape, b.shape)
ray.shutdown()
