"""Ray: what each node runs, and real clusters on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from muster.client.client import Client
from muster.client.cluster import up
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.frameworks.base import Answers, Cluster, Joined, Port, Role, Service, Setup, Succeeds
from muster.frameworks.registry import get_framework, read_options
from support.embedded import embedded
from support.faults import kill, lose_node, processes_of, until
from support.runs import start

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "ray"

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None or find_spec("aiohttp") is None or find_spec("sklearn") is None,
    reason="Ray (ray[default]) and scikit-learn are not installed",
)

MAIN = "${roster.0.address}"


def setup(nodes: int = 3, env: dict[str, str] | None = None, **options: Any) -> Setup:
    roles = (Role("main", 0, 1, env or {}), Role("workers", 1, nodes - 1, env or {}))
    framework = get_framework("ray")
    cluster = Cluster(roles[: 1 if nodes == 1 else 2], 1, read_options(framework, options))
    return framework.setup(cluster)


def service(made: Setup, role: str) -> Service:
    return made.roles[role].services[0]


def words(made: Setup, role: str) -> str:
    return " ".join(service(made, role).command)


def test_the_main_node_runs_head_and_program_and_other_nodes_workers() -> None:
    made = setup()
    head, worker = service(made, "main"), service(made, "workers")
    assert "--head --port ${port.head} " in words(made, "main")
    assert f"--dashboard-host {MAIN} --dashboard-port ${{port.dashboard}}" in words(made, "main")
    assert f"--address {MAIN}:${{port.head}}" in words(made, "workers")
    for one in (head, worker):
        text = " ".join(one.command)
        assert (
            "start --block --node-ip-address ${node.address} --node-name node-${node.rank}" in text
        )
        assert "--temp-dir ${folder} --object-spilling-directory ${tmp} --num-cpus ${cpus}" in text
        assert "--metrics-export-port ${port.metrics-export}" in text
        assert int(one.defaults["RAY_NUM_REDIS_GET_RETRIES"]) > 600, "ready_timeout decides"
    assert worker.after == Answers(MAIN, "${port.head}")
    assert made.env["RAY_ADDRESS"] == f"{MAIN}:${{port.head}}"
    assert made.defaults == {
        "HEAD_IP": MAIN,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "${run.token}",
    }
    assert made.roles["main"].program
    assert made.roles["main"].processes == 1
    assert made.roles["workers"].replaceable
    assert not made.roles["workers"].program
    assert not made.roles["workers"].decides
    assert made.ports[:2] == tuple(
        Port(name, number, variable=f"framework_options.{option}")
        for name, number, option in (
            ("head", 6379, "port"),
            ("dashboard", 8265, "dashboard_port"),
        )
    )


def test_the_program_waits_for_every_node_by_name() -> None:
    gather = setup(3).roles["main"].gather
    assert isinstance(gather, Joined)
    assert gather.expected == ((0, "node-0"), (1, "node-1"), (2, "node-2"))
    assert "nocache=1" in gather.path, "the dashboard's answers are two seconds old otherwise"


def test_without_a_dashboard_a_command_lists_the_nodes() -> None:
    made = setup(2, dashboard=False)
    gather = made.roles["main"].gather
    assert isinstance(gather, Succeeds)
    assert gather.expected == ((0, "node-0"), (1, "node-1"))
    assert "--include-dashboard false" in words(made, "main")
    assert "dashboard" not in [port.name for port in made.ports]
    assert "dashboard" not in made.endpoints
    assert "RAY_API_SERVER_ADDRESS" not in made.env


def test_a_persistent_cluster_has_a_service_for_clients() -> None:
    made = setup(2, **get_framework("ray").staying)
    served = made.roles["main"].services[1]
    assert served.ready == Answers(MAIN, "${port.clients}")
    assert Port("clients", 10001, variable="framework_options.client_port") in made.ports
    assert made.endpoints["address"] == f"ray://{MAIN}:${{port.clients}}"
    assert setup(2).endpoints["address"] == f"{MAIN}:${{port.head}}"


@pytest.mark.parametrize(
    ("env", "token", "listed"),
    [
        ({}, "${run.token}", True),
        ({"RAY_AUTH_TOKEN": "mine"}, "mine", False),
        ({"RAY_AUTH_MODE": "disabled"}, "${run.token}", False),
    ],
)
def test_clients_need_the_token(env: dict[str, str], token: str, listed: bool) -> None:
    made = setup(2, env=env)
    gather = made.roles["main"].gather
    assert isinstance(gather, Joined)
    assert gather.token == token
    assert ("token" in made.endpoints) is listed


def test_one_node_is_a_cluster() -> None:
    assert set(setup(1).roles) == {"main"}


@pytest.mark.parametrize(
    ("options", "role", "part"),
    [
        ({"num_cpus": 8}, "main", "--num-cpus 8 "),
        ({"num_cpus": 8}, "workers", "--num-cpus 8 "),
        ({"object_store_memory": "1GiB"}, "workers", "--object-store-memory 1073741824 "),
        ({"head_args": "--num-gpus 0"}, "main", " --num-gpus 0"),
        ({"worker_args": ["--num-gpus", 1]}, "workers", " --num-gpus 1"),
        (
            {"worker_ports": "10002-10101"},
            "workers",
            "--min-worker-port ${port.workers} --max-worker-port ${port.workers.last}",
        ),
    ],
)
def test_options_of_ray_start(options: dict[str, Any], role: str, part: str) -> None:
    assert part in words(setup(2, **options), role) + " "


def test_options_set_the_ports() -> None:
    made = setup(2, port=7000, worker_ports="10002-10101")
    head, *_, workers = made.ports
    assert head == Port("head", 7000, fixed=True, variable="framework_options.port")
    assert workers == Port("workers", 10002, each=True, count=100, held=False)


def test_submit_runs_the_program_as_a_job_of_ray() -> None:
    launcher = " ".join(setup(2, submit=True).roles["main"].launcher)
    assert launcher.endswith(f"submit --dashboard http://{MAIN}:${{port.dashboard}} --")
    with pytest.raises(InvalidInput, match=r"framework_options.submit"):
        setup(2, submit=True, dashboard=False)


@pytest.mark.parametrize("options", [{"port": 0}, {"worker_ports": "no"}, {"num_cpus": -1}])
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"framework_options.{next(iter(options))}"):
        read_options(get_framework("ray"), options)


# --- real clusters


def output_of_main(run: JobRun) -> str:
    return "\n".join(record.message for record in run.logs(ranks=[0]))


def losses(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", text)]


#: The example, which waits after step 60 until the lost node is replaced.
DRIVER = """
import os, time
from pathlib import Path
import ray
import train

def after(step, loss):
    train.say(step, loss)
    if step == 60:
        Path(os.environ["MARK"]).touch()
        until = time.monotonic() + 240
        while True:
            states = sorted((node["NodeName"], node["Alive"]) for node in ray.nodes())
            if states == [("node-0", True), ("node-1", False), ("node-1", True)]:
                break
            assert time.monotonic() < until, states
            time.sleep(0.1)
        print("replaced")

train.main(after)
"""


@needs_ray
@pytest.mark.slow
def test_a_lost_worker_is_replaced_and_the_model_is_the_same(
    client: Client, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    shutil.copy(EXAMPLE / "train.py", code)
    (code / "driver.py").write_text(DRIVER)
    (tmp_path / "job.yaml").write_text(
        f"artifact: code\nentrypoint: driver.py\nframework: ray\nnodes: 2\n"
        f"framework_options: {{num_cpus: 1}}\nenv: {{MARK: {tmp_path / 'mark'}}}\n"
        "failure: {max_restarts: 1}\n"
    )
    run = start(client, tmp_path / "job.yaml")
    until(lambda: (tmp_path / "mark").exists() or run.refresh().done, "step 60", 600)
    assert not run.done, run.details
    lose_node(run.id, 1)
    assert run.wait(600).state == "SUCCEEDED", run.details
    text = output_of_main(run)
    assert text.count("2 actors on 2 of 2 nodes") == 1, "the program was not restarted"
    assert "replaced" in text
    assert losses(text) == pytest.approx(alone(200), abs=1e-5)


def alone(steps: int) -> list[float]:
    """The example's losses, computed in one process without Ray."""
    import numpy as np
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = np.hstack([x / 16.0, np.ones((len(x), 1))])[:1440], y[:1440]
    model = np.zeros((65, 10))
    found = []
    for step in range(1, steps + 1):
        chances = np.exp(x @ model)
        chances /= chances.sum(axis=1, keepdims=True)
        if step % 50 == 0:
            found.append(float(-np.log(chances[np.arange(1440), y]).mean()))
        chances[np.arange(1440), y] -= 1
        model -= 2.0 * x.T @ chances / 1440
    return found


PROGRAM = """
import os, sys, time
from pathlib import Path
import ray
import helper

ray.init(log_to_driver=False)

@ray.remote
def there():
    import helper
    return helper.WORD, os.environ["MUSTER_NODE_ADDRESS"]

spread = there.options(scheduling_strategy="SPREAD")
print(sorted(set(ray.get([spread.remote() for _ in range(8)]))))
Path(os.environ["MARK"]).touch()
if sys.argv[1] == "waits":
    time.sleep(600)
if sys.argv[1] == "exits $3":
    print("failing", file=sys.stderr)
    sys.exit(3)
"""


def start_program(
    client: Client, folder: Path, how: str, options: str = "", more: str = ""
) -> JobRun:
    """Start PROGRAM on two nodes, with a module that its tasks import."""
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(PROGRAM)
    (folder / "code" / "helper.py").write_text("WORD = 'helped'\n")
    (folder / "job.yaml").write_text(
        f"artifact: code\nentrypoint: train.py\nframework: ray\nnodes: 2\nargs: ['{how}']\n"
        f"framework_options: {{num_cpus: 1, {options}}}\nenv: {{MARK: {folder / 'mark'}}}\n{more}"
    )
    return start(client, folder / "job.yaml")


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize(
    ("how", "options", "state", "code"),
    [
        ("ends", "dashboard: false, worker_ports: 10002-10051", "SUCCEEDED", 0),
        ("ends", "submit: true, clients: true", "SUCCEEDED", 0),
        ("exits $3", "submit: true", "FAILED", 3),
        ("exits $3", "dashboard: false", "FAILED", 3),
    ],
)
def test_the_run_ends_as_its_program(
    client: Client, tmp_path: Path, how: str, options: str, state: str, code: int
) -> None:
    run = start_program(client, tmp_path, how, options)
    assert run.wait(600).state == state, run.details
    assert run.exit_code == code
    assert "('helped', '127." in output_of_main(run)
    assert (tmp_path / "mark").exists()
    if code:
        assert "failing" in run.details


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize(("rank", "restarts"), [(0, 0), (1, 0), (0, 1)])
def test_a_lost_node_restarts_or_fails_the_run(
    client: Client, tmp_path: Path, rank: int, restarts: int
) -> None:
    mark = tmp_path / "mark"
    run = start_program(
        client, tmp_path, "waits", "dashboard: false", f"failure: {{max_restarts: {restarts}}}\n"
    )
    until(lambda: mark.exists() or run.refresh().done, "the program", 600)
    mark.unlink()
    lose_node(run.id, rank)
    if restarts:
        until(lambda: mark.exists() or run.refresh().done, "the program", 600)
        assert run.refresh().state == "IN_PROGRESS", run.details
        return
    assert run.wait(120).state == "FAILED"
    assert f"node-{rank}" in run.details


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize("victim", ["gcs_server", "raylet", "start --block"])
def test_killing_a_process_of_the_head_fails_the_run(
    client: Client, tmp_path: Path, victim: str
) -> None:
    run = start_program(client, tmp_path, "waits", "dashboard: false")
    until(lambda: (tmp_path / "mark").exists() or run.refresh().done, "the program", 600)
    (pid,) = (pid for pid, line in processes_of(run.id, 0).items() if is_command_of(line, victim))
    kill(pid)
    assert run.wait(120).state == "FAILED"
    assert "node-0 (group main" in run.details


def is_command_of(line: str, program: str) -> bool:
    """Whether the command line is of the program, not of one that has its name as an argument."""
    return program in line if " " in program else line.partition(" ")[0].endswith("/" + program)


OUTSIDE = """
import muster, ray
muster.cluster("ray").ray_init()
print(ray.get(ray.remote(lambda: "from inside").remote()))
"""


@pytest.mark.slow
@needs_ray
def test_clients_outside_use_a_persistent_cluster(client: Client) -> None:
    cluster, _ = up(client, "ray", 1)
    cluster.wait()
    assert cluster.address is not None
    assert cluster.dashboard is not None
    with pytest.raises(HTTPError, match="401"):
        urlopen(f"{cluster.dashboard}/api/version")
    output = subprocess.run(
        [sys.executable, "-c", OUTSIDE],
        env={**os.environ, "MUSTER_HOME": str(embedded(client).home.root)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
        check=True,
    )
    assert "from inside" in output.stdout
    assert cluster.down().state == "CANCELED"
