"""The first step of data parallel training over two ranks."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(8, 4)).sum().backward()
optimizer.step()
print(f"first-step {time.time()} of {dist.get_world_size()}", flush=True)
dist.destroy_process_group()
os._exit(0)  # PyTorch 2.13 may abort while gloo's threads end; not part of the measurement
