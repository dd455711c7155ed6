"""MultiWorkerMirroredStrategy on scikit-learn's handwritten digits, with checkpoints.

Nothing here is specific to Muster: the strategy finds the other workers in TF_CONFIG. Checkpoints
go to the mounted folder $MUSTER_MOUNT_CHECKPOINTS, or to ./checkpoints if nothing is mounted; a run
that finds one there resumes from it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH = 96  # over all workers


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training set and test set. The former divides by many numbers of workers."""
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16.0).astype("float32"), y.astype("int64")
    return x[:1440], y[:1440], x[1440:], y[1440:]


def batches(context: tf.distribute.InputContext, done: int) -> tf.data.Dataset:
    """This worker's part of each batch; all workers together process every sample.

    `done` is the number of steps completed before.
    """
    x, y, _, _ = digits()
    data = tf.data.Dataset.from_tensor_slices((x, y))
    mine = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    share = context.get_per_replica_batch_size(BATCH)
    return mine.repeat().batch(share, drop_remainder=True).skip(done)


class Network(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = np.random.default_rng(1)
        self.w1 = tf.Variable(generator.normal(0, 0.1, (64, 48)).astype("float32"))
        self.b1 = tf.Variable(tf.zeros(48))
        self.w2 = tf.Variable(generator.normal(0, 0.1, (48, 10)).astype("float32"))
        self.b2 = tf.Variable(tf.zeros(10))

    def __call__(self, x: Any) -> Any:
        return tf.tanh(x @ self.w1 + self.b1) @ self.w2 + self.b2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    # first call of TensorFlow: it starts this worker's server, and waits for the others
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver, workers = strategy.cluster_resolver, strategy.num_replicas_in_sync
    print(f"worker {resolver.task_id or 0} of {workers}")
    with strategy.scope():
        network = Network()
        step = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def replica_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, network(x))
            loss = tf.reduce_sum(losses) / BATCH
        variables = network.trainable_variables
        gradients = tape.gradient(loss, variables)
        context = tf.distribute.get_replica_context()
        for variable, gradient in zip(
            variables, context.all_reduce(tf.distribute.ReduceOp.SUM, gradients), strict=True
        ):
            variable.assign_sub(0.5 * gradient)
        return loss

    @tf.function
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=batch)
        step.assign_add(1)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    # all workers must save; only the chief's checkpoint is used
    checkpoints = os.environ.get("MUSTER_MOUNT_CHECKPOINTS", "checkpoints")
    chief = strategy.extended.should_checkpoint
    checkpoint = tf.train.Checkpoint(network=network, step=step)
    manager = tf.train.CheckpointManager(
        checkpoint, checkpoints if chief else tempfile.mkdtemp(), max_to_keep=2
    )
    if (last := tf.train.latest_checkpoint(checkpoints)) is not None:
        checkpoint.restore(last)
        if chief:
            print(f"resumes from step {int(step.numpy())}")

    done = int(step.numpy())
    data = strategy.distribute_datasets_from_function(lambda context: batches(context, done))
    for at, batch in enumerate(data, done + 1):
        if at > options.steps:
            break
        loss = train_step(batch)
        if at % 50 == 0 or at == options.steps:
            manager.save()
            if chief:
                print(f"step {at}: loss {float(loss):.6f}")
    if chief:
        _, _, test_x, test_y = digits()
        found = np.argmax(network(test_x), 1)
        print(f"test accuracy {(found == test_y).mean():.3f}")


if __name__ == "__main__":
    main()
