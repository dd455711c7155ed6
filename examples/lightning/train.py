"""Lightning on scikit-learn's handwritten digits.

No cluster code: the Trainer finds it in the environment. Each step takes the same
samples on any number of processes, so the losses are those of a single process.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings

import torch
from lightning import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH = 48  # over all processes
TRAIN = 30 * BATCH


class Digits(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
        bunch = load_digits()
        x = torch.tensor(bunch.data / 16.0, dtype=torch.float32)
        y = torch.tensor(bunch.target)
        self.train_set = TensorDataset(x[:TRAIN], y[:TRAIN])
        self.test = x[TRAIN:], y[TRAIN:]
        self.losses: list[Tensor] = []

    def train_dataloader(self) -> DataLoader:
        # the Trainer would shuffle them, differently for each number of processes
        world, rank = self.trainer.world_size, self.trainer.global_rank
        sampler = DistributedSampler(self.train_set, world, rank, shuffle=False)
        return DataLoader(self.train_set, BATCH // world, sampler=sampler)

    def training_step(self, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        x, y = batch
        loss = cross_entropy(self.net(x), y)
        self.losses.append(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        total = self.all_gather(torch.stack(self.losses).sum()).mean()
        self.losses.clear()
        if self.trainer.is_global_zero:
            print(f"epoch {self.current_epoch + 1}: loss {total.item():.4f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    epochs = parser.parse_args().epochs
    warnings.filterwarnings("ignore", ".*does not have many workers.*")

    trainer = Trainer(
        max_epochs=epochs,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    print(f"process {trainer.global_rank} of {trainer.world_size}")
    digits = Digits()
    trainer.fit(digits)
    if trainer.is_global_zero:
        x, y = digits.test
        with torch.no_grad():
            accuracy = (digits.net(x).argmax(1) == y).float().mean().item()
        print(f"test accuracy {accuracy:.3f}")
    trainer.strategy.barrier()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # see examples/pytorch-digits/train.py
