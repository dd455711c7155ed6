"""Horovod: a small network on scikit-learn's handwritten digits, plain or elastic.

Nothing here is specific to Muster. In elastic mode the state stays in the memory of the surviving
ranks: when a rank is lost, the others continue from their last commit.
"""

from __future__ import annotations

import argparse
import socket

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

GLOBAL_BATCH = 48  # of all ranks together: the steps are the same on any number of ranks


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The training set and the test set."""
    bunch = load_digits()
    x = torch.tensor(bunch.data / 16.0, dtype=torch.float32)
    y = torch.tensor(bunch.target, dtype=torch.long)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    return x[360:], y[360:], x[:360], y[:360]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--elastic", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    print(f"rank {hvd.rank()} of {hvd.size()} on {socket.gethostname()}")

    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.3), named_parameters=net.named_parameters()
    )
    x, y, test_x, test_y = digits()

    def epoch(number: int) -> None:
        total = 0.0
        for at in range(0, len(x) - GLOBAL_BATCH + 1, GLOBAL_BATCH):
            mine = slice(at + hvd.rank(), at + GLOBAL_BATCH, hvd.size())
            optimizer.zero_grad()
            loss = cross_entropy(net(x[mine]), y[mine])
            loss.backward()
            optimizer.step()
            total += loss.item()
        loss = hvd.allreduce(torch.tensor(total), name="loss")
        if hvd.rank() == 0:
            print(f"epoch {number}: loss {loss.item():.4f} with {hvd.size()} ranks")

    if options.elastic:
        state = hvd.elastic.TorchState(model=net, optimizer=optimizer, epoch=0)

        @hvd.elastic.run
        def train(state: hvd.elastic.TorchState) -> None:
            while state.epoch < options.epochs:
                epoch(state.epoch)
                state.epoch += 1
                state.commit()

        train(state)
    else:
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        for number in range(options.epochs):
            epoch(number)

    if hvd.rank() == 0:
        with torch.no_grad():
            accuracy = (net(test_x).argmax(1) == test_y).float().mean().item()
        print(f"test accuracy: {accuracy:.3f}")


if __name__ == "__main__":
    main()
