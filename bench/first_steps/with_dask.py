"""The first step over two workers: a gradient from each."""

import time

from distributed import Client


def gradient(rows: list[float], weight: float) -> float:
    return sum(2 * row * (weight * row - 1) for row in rows)


with Client() as client:
    client.wait_for_workers(2)
    workers = list(client.scheduler_info()["workers"])
    parts = [client.submit(gradient, [1.0, 2.0], 0.5, workers=[w], pure=False) for w in workers]
    weight = 0.5 - 0.1 * sum(client.gather(parts))
    print(f"first-step {time.time()} of {len(workers)}", flush=True)
