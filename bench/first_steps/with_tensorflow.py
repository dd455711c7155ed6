"""The first step over two synchronous workers."""

import time

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(tf.zeros([4, 1]))


def gradient() -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.ones([8, 4]) @ weight - 1.0) ** 2)
    return tape.gradient(loss, weight)


@tf.function
def step() -> tf.Tensor:
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(gradient), axis=None)


weight.assign_sub(0.1 * step())
print(f"first-step {time.time()} of {strategy.num_replicas_in_sync}", flush=True)
