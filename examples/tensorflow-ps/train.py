"""ParameterServerStrategy on scikit-learn's handwritten digits.

Every node runs this, with its task in TF_CONFIG. The chief coordinates, parameter servers hold the
model, workers compute the steps, an evaluator evaluates each checkpoint. Nothing here is specific
to Muster. Checkpoints go to the mounted folder $MUSTER_MOUNT_CHECKPOINTS, or to ./checkpoints if
nothing is mounted; a chief that finds one there resumes from it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH = 96
ROUND = 100  # steps between checkpoints


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training set and test set."""
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16.0).astype("float32"), y.astype("int64")
    return x[:1440], y[:1440], x[1440:], y[1440:]


class Network(tf.Module):
    """A linear model."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.zeros([64, 10]))
        self.b = tf.Variable(tf.zeros(10))

    def __call__(self, x: Any) -> Any:
        return x @ self.w + self.b


def serve(resolver: Any) -> None:
    """Worker or parameter server: serve the chief until ended from outside."""
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
    )
    print(f"{resolver.task_type} {resolver.task_id} serves")
    server.join()


def drive(resolver: Any, checkpoints: str, steps: int) -> None:
    """The chief: schedule steps, and save after each round of them."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        network = Network()
        step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(network=network, step=step)
    manager = tf.train.CheckpointManager(checkpoint, checkpoints, max_to_keep=3)
    if manager.latest_checkpoint is not None:
        checkpoint.restore(manager.latest_checkpoint)
        print(f"resumes from step {int(step.numpy())}")

    def batches(_: Any) -> tf.data.Dataset:
        x, y, _, _ = digits()
        data = tf.data.Dataset.from_tensor_slices((x, y))
        return data.shuffle(len(x), seed=1).repeat().batch(BATCH)

    @tf.function
    def per_worker() -> Any:
        return strategy.distribute_datasets_from_function(batches)

    def replica_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, network(x))
            loss = tf.reduce_mean(losses)
        variables = network.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.5 * gradient)
        step.assign_add(1)
        return loss

    @tf.function
    def train_step(iterator: Any) -> Any:
        return strategy.run(replica_step, args=next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(per_worker))
    while int(step.numpy()) < steps:
        losses = [coordinator.schedule(train_step, args=(iterator,)) for _ in range(ROUND)]
        coordinator.join()
        loss = float(np.mean(coordinator.fetch(losses)))
        manager.save()
        print(f"step {int(step.numpy())}: loss {loss:.3f}")
    _, _, test_x, test_y = digits()
    print(f"test accuracy {(np.argmax(network(test_x), 1) == test_y).mean():.3f}")


def evaluate(checkpoints: str, steps: int) -> None:
    """Evaluate each new checkpoint, up to the last."""
    network, step = Network(), tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(network=network, step=step)
    _, _, test_x, test_y = digits()
    for path in tf.train.checkpoints_iterator(checkpoints, min_interval_secs=1):
        try:
            checkpoint.restore(path).expect_partial()
        except tf.errors.NotFoundError:
            continue  # replaced by a newer one while it was read
        accuracy = (np.argmax(network(test_x), 1) == test_y).mean()
        print(f"step {int(step.numpy())}: test accuracy {accuracy:.3f}")
        if int(step.numpy()) >= steps:
            return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    checkpoints = os.environ.get("MUSTER_MOUNT_CHECKPOINTS", "checkpoints")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        serve(resolver)
    elif resolver.task_type == "evaluator":
        evaluate(checkpoints, options.steps)
    else:
        drive(resolver, checkpoints, options.steps)


if __name__ == "__main__":
    main()
