"""The first step over two ranks: the gradients are averaged as they arrive."""

import time

import horovod.torch as hvd
import torch

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
model(torch.ones(8, 4)).sum().backward()
optimizer.step()
print(f"first-step {time.time()} of {hvd.size()}", flush=True)
hvd.shutdown()
