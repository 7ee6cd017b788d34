"""torchrun for a torch that was built without libuv: its rendezvous asks for libuv even if USE_LIBUV forbids it."""

import functools

import torch.distributed

torch.distributed.TCPStore = functools.partial(torch.distributed.TCPStore, use_libuv=False)

from torch.distributed.run import main

main()
