"""A small PPO on verl's single controller: its roles, and the actor that controls them."""

import ray
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from verl import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.single_controller.ray.base import create_colocated_worker_cls

SIZE = 4  # prompts, and as many answers; the right answer to prompt i is i


class Role(Worker):
    """A linear model that all workers train together, over gloo."""

    def __init__(self, outputs):
        super().__init__()
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        torch.manual_seed(self.rank)
        self.model = DistributedDataParallel(torch.nn.Linear(SIZE, outputs))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)

    def step(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return DataProto.from_dict({"loss": loss.detach().reshape(1)})


class Actor(Role):
    def __init__(self):
        super().__init__(SIZE)

    def log_probs(self, data):
        return torch.log_softmax(self.model(data.batch["prompts"]), 1)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def generate(self, data):
        log_probs = self.log_probs(data).detach()
        answers = torch.multinomial(log_probs.exp(), 1)
        return DataProto.from_dict({"answers": answers, "old": log_probs.gather(1, answers)})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def update(self, data):
        ratio = (self.log_probs(data).gather(1, data.batch["answers"]) - data.batch["old"]).exp()
        gains = data.batch["advantages"]
        return self.step(-torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def weights(self):
        return self.model.module.weight.detach()


class Critic(Role):
    def __init__(self):
        super().__init__(1)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def values(self, data):
        return DataProto.from_dict({"values": self.model(data.batch["prompts"]).detach()})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def update(self, data):
        return self.step((self.model(data.batch["prompts"]) - data.batch["rewards"]).square().mean())


@ray.remote(num_cpus=1)
class TaskRunner:
    def run(self, steps):
        """Trains, and returns the mean reward of each step and the workers' weights."""
        roles = {"actor": RayClassWithInitArgs(ray.remote(Actor)), "critic": RayClassWithInitArgs(ray.remote(Critic))}
        group = RayWorkerGroup(RayResourcePool([2], use_gpu=False), create_colocated_worker_cls(roles), device_name="cpu")
        actor, critic = (group.spawn(set(roles))[role] for role in ("actor", "critic"))
        rewards = []
        for _ in range(steps):
            prompts = torch.randint(SIZE, (64, 1))
            data = DataProto.from_dict({"prompts": torch.eye(SIZE)[prompts.flatten()]})
            data = data.union(actor.generate(data)).union(critic.values(data))
            reward = (data.batch["answers"] == prompts).float()
            data.batch["rewards"], data.batch["advantages"] = reward, reward - data.batch["values"]
            critic.update(data)
            actor.update(data)
            rewards.append(reward.mean().item())
        return rewards, actor.weights()
