"""torchrun for a torch that was built without libuv: its rendezvous asks for libuv whatever USE_LIBUV says."""

import functools

import torch.distributed

torch.distributed.TCPStore = functools.partial(torch.distributed.TCPStore, use_libuv=False)

from torch.distributed.run import main

main()
