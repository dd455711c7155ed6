"""LightGBM on Dask: handwritten digits, spread over the workers.

No cluster code: `Client()` finds it in the environment.
"""

from __future__ import annotations

import dask.array as da
from distributed import Client
from lightgbm import DaskLGBMClassifier
from sklearn.datasets import load_digits


def main() -> None:
    x, y = load_digits(return_X_y=True)
    with Client() as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        print(f"{len(workers)} workers: {', '.join(sorted(w['name'] for w in workers.values()))}")
        train_x = da.from_array(x[:1437], chunks=(240, 64)).persist()
        train_y = da.from_array(y[:1437], chunks=(240,)).persist()
        model = DaskLGBMClassifier(n_estimators=30, num_leaves=15, verbose=-1, client=client)
        model.fit(train_x, train_y)
        test_x = da.from_array(x[1437:], chunks=(180, 64))
        accuracy = float((model.predict(test_x).compute() == y[1437:]).mean())
    print(f"test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
