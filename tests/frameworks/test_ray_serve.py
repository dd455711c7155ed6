"""Ray Serve on two nodes, with requests over HTTP; tests of Ray itself are in `test_ray`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from muster.client.client import Client, overrides_from
from muster.client.cluster import up
from muster.client.run import JobRun
from muster.frameworks import base
from muster.frameworks.ray import RayOptions
from muster.frameworks.registry import get_framework
from support.embedded import embedded
from support.faults import lose_node, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray-serve"

needs_serve = pytest.mark.skipif(
    find_spec("ray") is None or find_spec("starlette") is None, reason="no ray[serve]"
)


def setup(**options: object) -> base.Setup:
    roles = (base.Role("main", 0, 1, {}), base.Role("workers", 1, 1, {}))
    return get_framework("ray").setup(base.Cluster(roles, 1, RayOptions(**options)))  # type: ignore[arg-type]


def test_serve_is_an_endpoint_of_the_main_node() -> None:
    made = setup(serve=True)
    assert made.endpoints["serve"] == "http://${roster.0.address}:${port.serve}"
    (port,) = (port for port in made.ports if port.name == "serve")
    assert (port.number, port.fixed, port.each) == (8000, False, False)
    assert [one.name for one in made.roles["main"].services] == ["head", "serve"]
    (port,) = (p for p in setup(serve=True, serve_port=9000).ports if p.name == "serve")
    assert (port.number, port.fixed) == (9000, True)
    without = setup()
    assert "serve" not in without.endpoints
    assert [one.name for one in without.roles["main"].services] == ["head"]


def images() -> list[tuple[list[float], int]]:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return [(list(map(float, image)), int(label)) for image, label in zip(pixels, labels)]  # noqa: B905


def ask(url: str, pixels: list[float]) -> dict[str, object]:
    request = urllib.request.Request(url, json.dumps(pixels).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def answers(url: str) -> Iterator[dict[str, object] | None]:
    """Answers to one request after another; None if one failed, such as one to a lost replica."""
    while True:
        try:
            yield ask(url, [0.0] * 64)
        except (urllib.error.URLError, OSError):
            yield None


def await_answers_of(url: str, nodes: set[str]) -> None:
    """Wait until each of the nodes has answered."""
    seen: set[object] = set()
    next_answers = answers(url)

    def all_answered() -> bool:
        found = next(next_answers)
        if found is not None:
            seen.add(found["node"])
        return seen >= nodes

    until(all_answered, f"an answer of each of {sorted(nodes)}", 300)


@pytest.mark.shows("distributed-jobs/serving-framework")
@pytest.mark.slow
@needs_serve
def test_a_served_model_survives_the_loss_of_a_node(client: Client) -> None:
    job, new = client.job(EXAMPLE / "job.yaml")
    run: JobRun = client.start(client.prepare_run(job, overrides_from({}), new_job=new))
    try:
        until(lambda: "serve" in run.endpoints or run.refresh().done, "the endpoint")
        url = run.endpoints["serve"]
        await_answers_of(url, {"node-0", "node-1"})
        tried = images()[1500:1560]
        right = sum(ask(url, pixels)["digit"] == digit for pixels, digit in tried)
        assert right > 50, "the trained model answers"
        lose_node(run.id, 1)
        await_answers_of(url, {"node-0"})  # the other node still serves
        await_answers_of(url, {"node-0", "node-1"})  # the lost node was replaced
        assert run.to_dict()["endpoints"]["serve"] == url
        assert run.refresh().nodes[1].state == "READY"
        assert not run.done
    finally:
        run.cancel("the test is over").wait(60)


OUTSIDE = """
from urllib.request import urlopen
import muster
from ray import serve

@serve.deployment(ray_actor_options={"num_cpus": 0})
class Greeting:
    def __call__(self, request):
        return "hello from a cluster"

lab = muster.cluster("ray")
lab.ray_init(log_to_driver=False)
serve.run(Greeting.bind())
print(urlopen(lab.serve).read().decode())
"""


@pytest.mark.slow
@needs_serve
def test_clients_outside_deploy_to_a_persistent_cluster(client: Client) -> None:
    one, _ = up(client, "ray", 1, options={"serve": True, "num_cpus": 1})
    try:
        one.wait()
        assert str(one.to_dict()["serve"]).startswith("http://")
        output = subprocess.run(
            [sys.executable, "-c", OUTSIDE],
            env={**os.environ, "MUSTER_HOME": str(embedded(client).home.root)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=240,
            check=True,
        )
        assert "hello from a cluster" in output.stdout
    finally:
        one.down()
