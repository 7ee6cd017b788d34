"""GRPO in small: a policy, rollouts and rewards, each a group of workers, on CPUs.

The policy learns which of ten tokens the verifier likes. Its two workers average their gradients
with torch.distributed (gloo) and keep a checkpoint; one worker dies halfway, golaunch starts the
group again, and the controller goes on from the checkpoint.

    python examples/grpo-toy/main.py DIR
"""

import os
import random
import signal
import sys
from datetime import timedelta

from golaunch import VirtualCluster, WorkerFailureError, WorkerGroup

TOKENS, WANTED, STEPS, SAMPLES = 10, 7, 30, 32


class Policy:
    """Logits of a single token."""

    def __init__(self, directory, dies_at):
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo", timeout=timedelta(minutes=1))  # torch's own limit is half an hour
        self.torch, self.dist, self.rank = torch, dist, dist.get_rank()
        self.file, self.dies_at = os.path.join(directory, "policy.pt"), dies_at
        self.first = int(os.environ["GOLAUNCH_ATTEMPT"]) == 0
        self.step, self.logits = 0, torch.zeros(TOKENS)
        if os.path.exists(self.file):
            saved = torch.load(self.file)
            self.step, self.logits = saved["step"], saved["logits"]

    def state(self):
        return self.step, self.logits.softmax(0).tolist()

    def train_step(self, tokens, rewards):
        if self.first and self.rank == 1 and self.step == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        torch = self.torch
        rewards = torch.tensor(rewards)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)  # normalized within the group, as in GRPO
        logits = self.logits.clone().requires_grad_()
        loss = -(logits.log_softmax(0)[torch.tensor(tokens)] * advantages).mean()
        loss.backward()
        self.dist.all_reduce(logits.grad)
        self.logits -= 2.0 * logits.grad / self.dist.get_world_size()
        self.step += 1
        if self.rank == 0:
            torch.save({"step": self.step, "logits": self.logits}, self.file + ".new")
            os.replace(self.file + ".new", self.file)
        self.dist.barrier()  # all ranks wait until the checkpoint is written
        return loss.item()


class Rollout:
    def __init__(self):
        self.random = random.Random(int(os.environ["RANK"]))

    def generate(self, probabilities, samples):
        return self.random.choices(range(TOKENS), probabilities, k=samples)


class Verifier:
    def score(self, tokens):
        return [1.0 if t == WANTED else -abs(t - WANTED) / TOKENS for t in tokens]


def main(directory):
    with VirtualCluster([4], colocate=3) as cluster:
        policy = WorkerGroup(cluster, Policy, directory, STEPS // 2, name="policy", workers_per_node=2, preload="torch,torch.distributed")
        rollout = WorkerGroup(cluster, Rollout, name="rollout", workers_per_node=2)
        verifier = WorkerGroup(cluster, Verifier, name="verifier", workers_per_node=1)
        step, probabilities = policy.run_all_workers_single_data("state")[0]
        while step < STEPS:
            samples = list(rollout.run_all_workers_single_data("generate", probabilities, SAMPLES))
            rewards = [verifier.run_single_worker_single_data("score", 0, s) for s in samples]
            try:
                policy.run_all_workers_multiple_data("train_step", tokens=samples, rewards=[r.result() for r in rewards]).result()
            except WorkerFailureError as error:
                print(f"step {step}: worker {error.rank} on {error.node} failed ({error.cause})", flush=True)
                policy.restart_failed_workers()
            step, probabilities = policy.run_all_workers_single_data("state")[0]
        print(f"step {step}: the wanted token has a probability of {probabilities[WANTED]:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
