"""DistributedDataParallel on scikit-learn's handwritten digits, continuing after failures.

Nothing here is specific to Muster. Every epoch ends with a distributed checkpoint, which any number
of ranks can load: a starting rank resumes from the newest complete one. Each step takes the same
samples on any number of ranks, so the losses are those of a single rank.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

BATCH = 48  # over all ranks
TRAIN = 30 * BATCH
KEEP = 2  # checkpoints: the newest may be incomplete after a failure


class Training:
    """The contents of a checkpoint; `done` is the number of completed epochs."""

    def __init__(self, world: int) -> None:
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
        self.model = DistributedDataParallel(self.net) if world > 1 else self.net
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-3)
        self.done = 0

    def state(self) -> dict[str, object]:
        net, optimizer = get_state_dict(self.model, self.optimizer)
        return {"net": net, "optimizer": optimizer, "done": torch.tensor(self.done)}

    def load(self, path: Path) -> None:
        state = self.state()
        dcp.load(state, checkpoint_id=path)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["net"],
            optim_state_dict=state["optimizer"],
        )
        self.done = int(state["done"])

    def save(self, folder: Path) -> None:
        dcp.save(self.state(), checkpoint_id=folder / f"epoch-{self.done}")


def complete(folder: Path) -> list[Path]:
    """The complete checkpoints, newest first: `.metadata` is written last."""
    found = [path for path in folder.glob("epoch-*") if (path / ".metadata").exists()]
    return sorted(found, key=lambda path: int(path.name[6:]), reverse=True)


def newest(folder: Path) -> Path | None:
    """One rank chooses and broadcasts it: the others may not see the same files yet."""
    found = [next(iter(complete(folder)), None) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    return found[0]


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training set and test set."""
    bunch = load_digits()
    x = torch.tensor(bunch.data / 16.0, dtype=torch.float32)
    y = torch.tensor(bunch.target, dtype=torch.long)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    return x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--epochs", type=int, default=6, help="in total, with those of earlier starts"
    )
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
    options = parser.parse_args()
    checkpoints = Path(os.environ.get("MUSTER_MOUNT_CHECKPOINTS", "checkpoints"))

    # the others report a hanging rank after this time, not after 30 minutes
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} on {socket.gethostname()}")
    if BATCH % world:
        sys.exit(f"{world} ranks cannot share {BATCH} samples equally")

    training = Training(world)
    if (found := newest(checkpoints)) is not None:
        training.load(found)
        if rank == 0:
            print(f"resumes from {found.name}")

    x, y, test_x, test_y = digits()
    share = BATCH // world
    while training.done < options.epochs:
        total = torch.zeros(1)
        for step in range(0, TRAIN, BATCH):
            mine = slice(step + rank * share, step + (rank + 1) * share)
            training.optimizer.zero_grad()
            loss = cross_entropy(training.model(x[mine]), y[mine])
            loss.backward()
            training.optimizer.step()
            total += loss.detach() / world
            time.sleep(options.pause)
        dist.all_reduce(total)
        training.done += 1
        training.save(checkpoints)
        if rank == 0:
            print(f"epoch {training.done}: loss {total.item():.4f}")
            for old in complete(checkpoints)[KEEP:]:
                shutil.rmtree(old)

    if rank == 0:
        with torch.no_grad():
            accuracy = (training.net(test_x).argmax(1) == test_y).float().mean().item()
        print(f"test accuracy {accuracy:.3f}")
    dist.barrier()
    del training  # before the group, see examples/pytorch-digits/train.py
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # PyTorch 2.13: a gloo thread that is still ending can hang or abort the process while the
    # interpreter shuts down; everything is saved and printed, so skip the shutdown
    sys.stdout.flush()
    os._exit(0)
