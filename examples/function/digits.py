"""A function on four nodes: each grows a part of a forest, and the parts are combined."""

import os

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import muster


def data():
    images, labels = load_digits(return_X_y=True)
    return train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)


@muster.job(nodes=4, max_runtime="10m")
def grow(trees):
    """A forest with this number of trees, different on each node."""
    rank = int(os.environ["NODE_RANK"])
    train_x, _, train_y, _ = data()
    forest = RandomForestClassifier(trees, max_depth=6, random_state=rank).fit(train_x, train_y)
    print(f"rank {rank} has grown {trees} trees")
    return forest


def accuracy(forests):
    _, test_x, _, test_y = data()
    votes = np.mean([forest.predict_proba(test_x) for forest in forests], axis=0)
    return float(np.mean(votes.argmax(axis=1) == test_y))


if __name__ == "__main__":
    run = grow.submit(5)
    forests = run.results()
    print(f"{run.name}: one forest {accuracy(forests[:1]):.3f}, all {accuracy(forests):.3f}")
