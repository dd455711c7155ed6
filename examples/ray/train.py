"""Data parallelism with Ray on scikit-learn's handwritten digits: each actor has a share of them.

No cluster code: `ray.init()` finds the cluster in the environment. An actor whose node is lost
restarts elsewhere, with the same share.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import ray
from sklearn.datasets import load_digits

TRAINING = 1440


def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    return np.hstack([x / 16.0, np.ones((len(x), 1))]), y


# restarted without limit; calls that it could not answer are repeated
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD", max_restarts=-1, max_task_retries=-1)
class Share:
    """Every Nth training image, where N is the number of actors."""

    def __init__(self, number: int, of: int) -> None:
        x, y = digits()
        self.x, self.y = x[number:TRAINING:of], y[number:TRAINING:of]

    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def gradient(self, model: np.ndarray) -> tuple[np.ndarray, float]:
        """Sums of the gradient and the loss over the share."""
        scores = self.x @ model
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(self.y))
        loss = -np.log(chances[rows, self.y]).sum()
        chances[rows, self.y] -= 1
        return self.x.T @ chances, float(loss)


def train(shares: list, steps: int, after: Callable[[int, float], None]) -> np.ndarray:
    """Train the model; `after` is called after each step with the loss before it."""
    model = np.zeros((65, 10))
    for step in range(1, steps + 1):
        reference = ray.put(model)
        parts = ray.get([share.gradient.remote(reference) for share in shares])
        model = model - 2.0 * sum(gradient for gradient, _ in parts) / TRAINING
        after(step, sum(loss for _, loss in parts) / TRAINING)
    return model


def report(step: int, loss: float) -> None:
    if step % 50 == 0:
        print(f"step {step}: loss {loss:.6f}")


def main(after: Callable[[int, float], None] = report) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    ray.init()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    shares = [Share.remote(number, len(nodes)) for number in range(len(nodes))]
    used = set(ray.get([share.node.remote() for share in shares]))
    print(f"{len(shares)} actors on {len(used)} of {len(nodes)} nodes")

    model = train(shares, options.steps, after)
    x, y = digits()
    found = np.argmax(x[TRAINING:] @ model, axis=1)
    print(f"test accuracy {(found == y[TRAINING:]).mean():.3f}")


if __name__ == "__main__":
    main()
