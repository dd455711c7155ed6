"""DeepSpeed (ZeRO stage 1) on scikit-learn's handwritten digits.

No cluster code: `init_distributed()` finds it in the environment. Each step takes the same
samples on any number of processes, so the losses are those of a single process.
"""

from __future__ import annotations

import argparse
import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

BATCH = 48  # over all processes
TRAIN = 30 * BATCH
CONFIG = {
    "train_batch_size": BATCH,
    "optimizer": {"type": "Adam", "params": {"lr": 3e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--local_rank", help="given by DeepSpeed's own launcher")
    epochs = parser.parse_args().epochs

    deepspeed.init_distributed()
    print(f"process {dist.get_rank()} of {dist.get_world_size()}")

    bunch = load_digits()
    x = torch.tensor(bunch.data / 16.0, dtype=torch.float32)
    y = torch.tensor(bunch.target)
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    engine, _, loader, _ = deepspeed.initialize(
        model=net,
        model_parameters=net.parameters(),
        training_data=TensorDataset(x[:TRAIN], y[:TRAIN]),
        config=CONFIG,
    )
    for epoch in range(1, epochs + 1):
        total = torch.zeros(1, device=engine.device)
        for some_x, some_y in loader:
            loss = cross_entropy(engine(some_x.to(engine.device)), some_y.to(engine.device))
            engine.backward(loss)
            engine.step()
            total += loss.detach() / dist.get_world_size()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total.item():.4f}")

    if dist.get_rank() == 0:
        with torch.no_grad():
            guess = net(x[TRAIN:].to(engine.device)).argmax(1).cpu()
        print(f"test accuracy {(guess == y[TRAIN:]).float().mean().item():.3f}")
    dist.barrier()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # see examples/pytorch-digits/train.py
