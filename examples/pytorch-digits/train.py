"""DistributedDataParallel on scikit-learn's handwritten digits, with checkpoints.

Nothing here is specific to Muster: the environment is set up for `torch.distributed`, as under
torchrun. Checkpoints go to the mounted folder $MUSTER_MOUNT_CHECKPOINTS, or to ./checkpoints if
nothing is mounted; a run that finds one there resumes from it.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

BATCH = 32


def digits(rank: int, world: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """This rank's share of the training set, and the whole test set."""
    bunch = load_digits()
    x = torch.tensor(bunch.data / 16.0, dtype=torch.float32)
    y = torch.tensor(bunch.target, dtype=torch.long)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    test_x, test_y, x, y = x[:360], y[:360], x[360:], y[360:]
    share = len(x) // world  # every rank takes the same number of steps
    mine = slice(rank * share, (rank + 1) * share)
    return x[mine], y[mine], test_x, test_y


def newest(folder: Path) -> Path | None:
    """The checkpoint of the highest epoch."""
    return max(folder.glob("epoch-*.pt"), key=lambda p: int(p.stem[6:]), default=None)


def load(folder: Path) -> dict[str, Any] | None:
    """Rank 0's newest checkpoint, on every rank.

    One rank reads and broadcasts it: a shared folder may not show all nodes the same files at the
    same moment, and ranks that start from different epochs would train different models.
    """
    state: list[dict[str, Any] | None] = [None]
    if dist.get_rank() == 0 and (found := newest(folder)) is not None:
        print(f"resumes from {found.name}")
        state = [torch.load(found, weights_only=True)]
    dist.broadcast_object_list(state)
    return state[0]


def save(folder: Path, epoch: int, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write to another name first and rename, so that no checkpoint is incomplete."""
    state = {"epoch": epoch, "net": net.state_dict(), "optimizer": optimizer.state_dict()}
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "part"
    torch.save(state, part)
    part.rename(folder / f"epoch-{epoch}.pt")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    checkpoints = Path(os.environ.get("MUSTER_MOUNT_CHECKPOINTS", "checkpoints"))

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} on {socket.gethostname()}")

    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    first = 0
    if (state := load(checkpoints)) is not None:
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    model = DistributedDataParallel(net)

    x, y, test_x, test_y = digits(rank, world)
    for epoch in range(first, first + options.epochs):
        total = torch.zeros(1)
        for at in range(0, len(x) - BATCH + 1, BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(model(x[at : at + BATCH]), y[at : at + BATCH])
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            save(checkpoints, epoch, net, optimizer)
            print(f"epoch {epoch}: loss {total.item():.2f}")

    if rank == 0:
        with torch.no_grad():
            accuracy = (net(test_x).argmax(1) == test_y).float().mean().item()
        print(f"test accuracy: {accuracy:.3f}")
    dist.barrier()
    # the last reference to the group joins gloo's threads. If that is the model, it holds the
    # interpreter's lock, for which such a thread may wait: a deadlock. destroy_process_group() does
    # not hold the lock, so delete the model first
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # PyTorch 2.13: a gloo thread that is still ending can abort the process while the interpreter
    # shuts down; everything is saved and printed, so skip the shutdown
    sys.stdout.flush()
    os._exit(0)
