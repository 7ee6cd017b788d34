"""One rank of a gloo group whose store the launcher serves."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor([rank])
dist.all_reduce(total)
assert total.item() == size * (size - 1) // 2
pair = dist.new_group([0, 1])
if rank < 2:
    some = torch.ones(1)
    dist.all_reduce(some, group=pair)
    assert some.item() == 2
names = [None] * size
dist.all_gather_object(names, f"rank {rank}")
assert names == [f"rank {r}" for r in range(size)]
dist.barrier()
dist.destroy_process_group()
print("ok")
