"""Hugging Face Accelerate on scikit-learn's handwritten digits.

No cluster code: `Accelerator()` finds it in the environment. Each step takes the same
samples on any number of processes, so the losses are those of a single process.
"""

from __future__ import annotations

import argparse
import os
import sys

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

BATCH = 48  # over all processes
TRAIN = 30 * BATCH


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    epochs = parser.parse_args().epochs

    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
    print(f"process {accelerator.process_index} of {accelerator.num_processes}")

    bunch = load_digits()
    x = torch.tensor(bunch.data / 16.0, dtype=torch.float32)
    y = torch.tensor(bunch.target)
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(x[:TRAIN], y[:TRAIN]), BATCH)
    model, optimizer, loader = accelerator.prepare(net, optimizer, loader)

    for epoch in range(1, epochs + 1):
        total = torch.zeros(1, device=accelerator.device)
        for some_x, some_y in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(some_x), some_y)
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
        total = accelerator.reduce(total, reduction="mean")
        if accelerator.is_main_process:
            print(f"epoch {epoch}: loss {total.item():.4f}")

    if accelerator.is_main_process:
        with torch.no_grad():
            guess = net(x[TRAIN:].to(accelerator.device)).argmax(1).cpu()
        print(f"test accuracy {(guess == y[TRAIN:]).float().mean().item():.3f}")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # see examples/pytorch-digits/train.py
