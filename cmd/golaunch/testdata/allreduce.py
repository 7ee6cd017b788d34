import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the ranks add up to {total.item()}")
dist.destroy_process_group()
