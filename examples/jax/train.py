"""Data parallelism in JAX on scikit-learn's handwritten digits, with checkpoints.

Nothing here is specific to Muster: `initialize()` finds the other processes in the environment.
Checkpoints go to the output directory of the run, or to ./checkpoints without Muster; when the
program restarts, it resumes from the one that it finds there.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

Model = dict[str, Any]


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training set and test set. The former divides by many numbers of processes."""
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16.0).astype("float32"), y.astype("int32")
    return x[:1440], y[:1440], x[1440:], y[1440:]


def logits(model: Model, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ model["w1"] + model["b1"]) @ model["w2"] + model["b2"]


def loss(model: Model, x: jax.Array, y: jax.Array) -> jax.Array:
    logp = jax.nn.log_softmax(logits(model, x))
    return -jnp.take_along_axis(logp, y[:, None], axis=1).mean()


@jax.jit
def train_step(model: Model, x: jax.Array, y: jax.Array) -> tuple[Model, jax.Array]:
    """The batch is spread over all devices; JAX sums their gradients."""
    value, gradient = jax.value_and_grad(loss)(model, x, y)
    return jax.tree.map(lambda p, g: p - 0.5 * g, model, gradient), value


def new_model() -> Model:
    generator = np.random.default_rng(1)
    return {
        "w1": generator.normal(0, 0.1, (64, 48)).astype("float32"),
        "b1": np.zeros(48, "float32"),
        "w2": generator.normal(0, 0.1, (48, 10)).astype("float32"),
        "b2": np.zeros(10, "float32"),
    }


def load(folder: Path) -> tuple[int, Model]:
    """Completed steps and the model after them.

    One process reads the checkpoint and broadcasts it: all must resume from the same step."""
    step, model = 0, new_model()
    if jax.process_index() == 0 and (folder / "model.npz").exists():
        saved = dict(np.load(folder / "model.npz"))
        step = int(saved.pop("step"))
        model = saved
        print(f"resumes from step {step}")
    shared = multihost_utils.broadcast_one_to_all({"step": np.int32(step), "model": model})
    return int(shared["step"]), shared["model"]


def save(folder: Path, step: int, model: Model) -> None:
    """Write to another name first and rename, so that no checkpoint is incomplete."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "part").open("wb") as part:
        np.savez(part, step=step, **model)
    (folder / "part").rename(folder / "model.npz")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    checkpoints = Path(os.environ.get("MUSTER_RUN_OUTPUTS", "checkpoints"))

    jax.distributed.initialize()
    rank, processes = jax.process_index(), jax.process_count()
    print(
        f"process {rank} of {processes}, {jax.local_device_count()} of {jax.device_count()} devices"
    )

    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    x, y, test_x, test_y = digits()
    share = len(x) // processes
    mine = slice(rank * share, (rank + 1) * share)
    x, y = (jax.make_array_from_process_local_data(rows, part[mine]) for part in (x, y))

    done, model = load(checkpoints)
    model = jax.device_put(model, everywhere)
    for step in range(done + 1, options.steps + 1):
        model, value = train_step(model, x, y)
        if rank == 0 and (step % 50 == 0 or step == options.steps):
            save(checkpoints, step, jax.device_get(model))
            print(f"step {step}: loss {float(value):.6f}")
    if rank == 0:
        found = np.argmax(logits(jax.device_get(model), test_x), 1)
        print(f"test accuracy {(found == test_y).mean():.3f}")


if __name__ == "__main__":
    main()
