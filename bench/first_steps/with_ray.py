"""The first step over two nodes: a gradient from each."""

import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(log_to_driver=False)
while len(nodes := [node["NodeID"] for node in ray.nodes() if node["Alive"]]) < 2:
    time.sleep(0.02)


@ray.remote(num_cpus=1)
def gradient(rows: list[float], weight: float) -> float:
    return sum(2 * row * (weight * row - 1) for row in rows)


places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
parts = [gradient.options(scheduling_strategy=p).remote([1.0, 2.0], 0.5) for p in places]
weight = 0.5 - 0.1 * sum(ray.get(parts))
print(f"first-step {time.time()} of {len(nodes)}", flush=True)
