"""mpi4py: softmax regression on scikit-learn's handwritten digits, gradients summed by Allreduce.

Nothing here is specific to Muster. Each rank has its share of the rows; every row counts once in
every step, so the model does not depend on the number of ranks.
"""

from __future__ import annotations

import argparse
import socket

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    print(f"rank {comm.rank} of {comm.size} on {socket.gethostname()}")

    data, target = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(data))
    data, target = data[order] / 16.0, target[order]
    test_x, test_y, train_x, train_y = data[:360], target[:360], data[360:], target[360:]
    x, y = train_x[comm.rank :: comm.size], train_y[comm.rank :: comm.size]

    weights = np.zeros((64, 10))
    gradient = np.empty_like(weights)
    for step in range(options.steps):
        scores = np.exp(x @ weights)
        share = scores / scores.sum(1, keepdims=True)
        loss = comm.allreduce(-np.log(share[np.arange(len(y)), y]).sum()) / len(train_x)
        share[np.arange(len(y)), y] -= 1.0
        comm.Allreduce(x.T @ share, gradient)
        weights -= 0.5 * gradient / len(train_x)
        if comm.rank == 0 and step % 50 == 49:
            print(f"step {step + 1}: loss {loss:.6f}")

    if comm.rank == 0:
        accuracy = ((test_x @ weights).argmax(1) == test_y).mean()
        print(f"test accuracy: {accuracy:.3f}")


if __name__ == "__main__":
    main()
