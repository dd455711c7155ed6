"""The first step over two ranks: their gradients, summed."""

import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rows, weight = np.ones((8, 4)), np.zeros(4)
weight -= 0.1 * world.allreduce(rows.T @ (rows @ weight - 1.0))
print(f"first-step {time.time()} of {world.size}", flush=True)
