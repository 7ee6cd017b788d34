"""A session of Ray's names on a machine with GPUs, whose driver is one of the tests'."""

import os
import unittest

import ray
from base import patched_environment


@ray.remote
def seen():
    return ray.get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")


class OfDriver(unittest.TestCase):
    def session(self):
        ray.init(include_dashboard=False, logging_level="ERROR")
        self.addCleanup(ray.shutdown)

    def test_a_session_has_the_gpus_of_its_machine(self):
        self.session()
        self.assertEqual(ray.cluster_resources()["GPU"], 4.0)
        self.assertEqual(ray.get(seen.options(num_gpus=2).remote()), ([0, 1], "0,1"))
        self.assertEqual(ray.get(seen.options(num_gpus=4).remote())[1], "0,1,MIG-aa000000-0000,MIG-bb000000-0000")

    def test_it_has_those_that_the_program_may_use(self):
        with patched_environment(CUDA_VISIBLE_DEVICES="1"):
            self.session()
            self.assertEqual(ray.cluster_resources()["GPU"], 1.0)
            self.assertEqual(ray.get(seen.options(num_gpus=1).remote()), (["1"], "1"))
            self.assertEqual(ray.get([seen.options(num_gpus=0.5).remote() for _ in range(2)]), [(["1"], "1")] * 2)


if __name__ == "__main__":
    unittest.main()
