"""Dask: what its nodes run, and real clusters on this machine."""

from __future__ import annotations

import os
import re
import signal
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from muster.api.streams import Selection
from muster.cli.runs import show
from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.frameworks.base import Cluster, Joined, Role, Service, Setup
from muster.frameworks.registry import get_framework, read_options
from support.faults import kill, lose_node, processes_of, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "dask"
MAIN = "${roster.0.address}"

needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed")


def setup(nodes: int = 3, processes: int = 1, env: Any = None, **options: Any) -> Setup:
    dask = get_framework("dask")
    roles = [Role("main", 0, 1, env or {})]
    if nodes > 1:
        roles.append(Role("workers", 1, nodes - 1, {}))
    return dask.setup(Cluster(tuple(roles), processes, read_options(dask, options)))


def services(setup: Setup, group: str) -> dict[str, Service]:
    return {service.name: service for service in setup.roles[group].services}


def words(setup: Setup, service: str, group: str = "main") -> str:
    return " ".join(services(setup, group)[service].command)


def awaited(setup: Setup) -> tuple[str, ...]:
    gather = setup.roles["main"].gather
    assert isinstance(gather, Joined)
    return tuple(name for _, name in gather.expected)


# --- setup


@pytest.mark.shows(
    "ads-configuration/dask-dashboard-port",
    "ads-configuration/dask-scheduler-port",
    "cluster-design/master-script",
)
def test_the_main_node_runs_scheduler_and_program_and_every_node_a_worker() -> None:
    made = setup()
    main, workers = made.roles["main"], made.roles["workers"]
    assert list(services(made, "main")) == ["scheduler", "worker"]
    assert list(services(made, "workers")) == ["worker"]
    assert (main.program, main.decides, main.replaceable, main.processes) == (True, True, False, 1)
    assert (workers.program, workers.decides, workers.replaceable) == (False, False, True)
    assert words(made, "scheduler").startswith(
        f"${{python}} -m muster.node.requirements dask dask scheduler --host {MAIN} "
        "--port ${port.scheduler} --protocol tcp "
    )
    assert made.env == {"DASK_SCHEDULER_ADDRESS": f"tcp://{MAIN}:${{port.scheduler}}"}
    assert awaited(made) == ("node-0", "node-1", "node-2")
    assert [(port.name, port.number) for port in made.ports] == [
        ("scheduler", 8786),
        ("dashboard", 8787),
    ]


def test_the_time_to_live_of_workers_is_dasks_default() -> None:
    """A worker whose task holds Python's lock sends no heartbeats; a shorter time would kill it."""
    made = setup()
    assert not any("TTL" in name for name in (*made.defaults, *made.env))


def test_one_node_is_a_cluster() -> None:
    made = setup(1)
    assert list(made.roles) == ["main"]
    assert awaited(made) == ("node-0",)


@pytest.mark.shows(
    "ads-configuration/dask-nanny-ports",
    "ads-configuration/dask-worker-ports",
    "cluster-design/worker-nworkers",
)
@pytest.mark.parametrize(
    ("processes", "options", "found"),
    [
        (1, {}, "--nworkers 1 --nthreads ${cpus}"),
        (1, {"threads": 3}, "--nworkers 1 --nthreads 3"),
        (2, {}, "--nworkers 2 --nthreads 1"),
        (2, {"threads": 3}, "--nworkers 2 --nthreads 3"),
        (1, {"worker_ports": "8700-8800"}, "--worker-port 8700:8800"),
        (1, {"nanny_ports": "3000:3100"}, "--nanny-port 3000:3100"),
        (1, {"worker_args": ["--no-nanny", "--memory-limit", "1GiB"]}, "--no-nanny --memory-limit"),
    ],
)
def test_options_of_workers(processes: int, options: dict[str, Any], found: str) -> None:
    made = setup(2, processes, **options)
    for group in ("main", "workers"):
        assert found in words(made, "worker", group)


def test_each_process_is_a_named_worker() -> None:
    assert awaited(setup(2, 2)) == ("node-0-0", "node-0-1", "node-1-0", "node-1-1")


def test_a_main_node_without_a_worker() -> None:
    made = setup(worker_on_main=False)
    assert list(services(made, "main")) == ["scheduler"]
    assert awaited(made) == ("node-1", "node-2")


def test_scheduler_args_are_passed_to_the_scheduler() -> None:
    assert words(setup(scheduler_args=["--idle-timeout", "1h"]), "scheduler").endswith(
        "--idle-timeout 1h"
    )


def test_tls_sets_protocol_and_certificates() -> None:
    made = setup(tls=True)
    assert made.tls
    assert made.env["DASK_SCHEDULER_ADDRESS"].startswith("tls://")
    assert made.env["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
    assert "--protocol tls" in words(made, "scheduler")
    assert f"tls://{MAIN}" in words(made, "worker")
    assert not setup().tls


@pytest.mark.shows("ads-configuration/dask-dashboard-port", "ads-configuration/dask-scheduler-port")
def test_variables_set_the_ports() -> None:
    made = setup(env={"DASK_SCHEDULER_PORT": "9000"})
    assert [(port.number, port.fixed) for port in made.ports] == [(9000, True), (8787, False)]
    with pytest.raises(InvalidInput, match=r"node_groups\[main\].env.DASK_DASHBOARD_PORT"):
        setup(env={"DASK_DASHBOARD_PORT": "nine"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worker_ports": "8800-8700"}, "is not a range of ports"),
        ({"worker_ports": "0-99999"}, "write 8700-8800"),
        ({"threads": 0}, "framework_options.threads"),
        ({"worker_arg": []}, 'did you mean "worker_args"?'),
    ],
)
def test_settings_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message.replace("?", r"\?")):
        setup(**options)


# --- real clusters


def start(client: Client, folder: Path, program: str, **fields: Any) -> JobRun:
    """Run a program with this body, which uses `client`; on two nodes by default."""
    text = "import os, time\nfrom distributed import Client\n\n\ndef main(client):\n"
    text += textwrap.indent(textwrap.dedent(program).strip(), "    ")
    text += "\n\n\nif __name__ == '__main__':\n    with Client() as client:\n        main(client)\n"
    (folder / "program.py").write_text(text)
    settings = {"framework": "dask", "nodes": 2, "entrypoint": "program.py", **fields}
    job, new = client.job(folder, name="demo", **settings)
    return client.start(client.prepare_run(job, overrides_from({}), new_job=new))


def messages(run: JobRun) -> list[str]:
    return [record.message for record in run.logs(streams=["stdout"])]


def succeeded(run: JobRun) -> list[str]:
    assert run.wait(300).state == "SUCCEEDED", (run.details, run.cause)
    return messages(run)


def await_line(run: JobRun, text: str) -> None:
    """Wait until the program has printed the line."""

    def is_printed() -> bool:
        assert not run.refresh().done, (run.state, run.details)
        return text in messages(run)

    until(is_printed, text)


def services_on(run: JobRun, rank: int, word: str) -> list[int]:
    found = processes_of(run.id, rank)
    return [pid for pid, line in found.items() if f"dask {word}" in line]


XGBOOST = """
    import dask.array as da, xgboost, xgboost.dask
    from sklearn.datasets import load_digits
    x, y = load_digits(return_X_y=True)
    params = {"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "tree_method": "hist"}
    alone = xgboost.train({**params, "nthread": 1}, xgboost.DMatrix(x[:1437], y[:1437]), 8)
    dx, dy = (da.from_array(part[:1437], chunks=(240, *part.shape[1:])) for part in (x, y))
    data = xgboost.dask.DaskDMatrix(client, dx.persist(), dy.persist())
    spread = xgboost.dask.train(client, params, data, num_boost_round=8)["booster"]
    held_out = xgboost.DMatrix(x[1437:])
    one, all = (float((m.predict(held_out) == y[1437:]).mean()) for m in (alone, spread))
    ranks = client.run(lambda: os.environ["NODE_RANK"])
    print("nodes", *sorted(ranks.values()), "same" if abs(one - all) < 0.03 < one else (one, all))
"""


@needs_dask
@pytest.mark.slow
@pytest.mark.skipif(find_spec("xgboost") is None, reason="XGBoost is not installed")
def test_xgboost_is_as_good_as_on_one_node(client: Client, tmp_path: Path) -> None:
    run = start(client, tmp_path, XGBOOST)
    assert "nodes 0 1 same" in succeeded(run)
    records = [record.message for record in run.logs(streams=["stdout", "stderr"])]
    assert not [line for line in records if "INFO" in line], (
        "only the program's own output is shown"
    )
    chunks = run.log_chunks(Selection(services=["scheduler"]))
    assert any(b"Registering" in c.data or b"Register worker" in c.data for c in chunks)


CONNECT = """
    import socket, ssl
    host, port = client.scheduler.address.removeprefix("tls://").split(":")
    certificates = os.path.dirname(os.environ["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"])
    for kind in ("ours", "no certificate", "no encryption"):
        context = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
        if kind == "ours":
            context.load_cert_chain(f"{certificates}/cert.pem", f"{certificates}/key.pem")
        with socket.create_connection((host, int(port)), 60) as raw:
            try:
                plain = kind == "no encryption"
                one = raw if plain else context.wrap_socket(raw, server_hostname=host)
                if plain:
                    one.sendall(b"x" * 1000)
                print(kind, "answered" if one.recv(1) else "closed")
                one.close()
            except (ssl.SSLError, ConnectionResetError) as error:
                print(kind, "refused")
    print(client.submit(sum, [1, 2]).result(), set(a.split(":")[0] for a in client.nthreads()))
"""


@needs_dask
@pytest.mark.slow
def test_clients_without_the_certificate_are_refused(client: Client, tmp_path: Path) -> None:
    output = succeeded(start(client, tmp_path, CONNECT, framework_options={"tls": True}))
    assert output[0] == "ours answered"
    assert output[1] == "no certificate refused"
    assert output[2] in ("no encryption refused", "no encryption closed")
    assert output[3] == "3 {'tls'}"


#: Waits until a worker is lost or replaced, and then runs tasks on two workers.
LOSS = """
    before = client.scheduler_info(n_workers=-1)["workers"]
    print("up")
    while set(client.scheduler_info(n_workers=-1)["workers"]) == set(before):
        time.sleep(0.1)
    print("lost one")
    client.wait_for_workers(2)
    while len(client.run(os.getpid)) < 2:
        time.sleep(0.1)
    print(sum(client.gather(client.map(lambda i: i * i, range(10)))))
"""


@needs_dask
@pytest.mark.slow
def test_a_lost_node_is_replaced_while_the_program_continues(
    client: Client, tmp_path: Path
) -> None:
    run = start(client, tmp_path, LOSS, failure={"max_restarts": 1})
    await_line(run, "up")
    lose_node(run.id, 1)
    assert succeeded(run) == ["up", "lost one", "285"], "the program was not restarted"
    assert run.attempt == 0


@needs_dask
@pytest.mark.slow
def test_a_lost_node_fails_a_run_without_restarts(client: Client, tmp_path: Path) -> None:
    run = start(client, tmp_path, LOSS)
    await_line(run, "up")
    lose_node(run.id, 1)
    assert run.wait(300).state == "FAILED"
    assert run.cause is not None
    assert (run.cause["rank"], run.cause["reason"]) == (1, "node_lost")


@needs_dask
@pytest.mark.slow
def test_the_nanny_restarts_a_killed_worker(client: Client, tmp_path: Path) -> None:
    run = start(client, tmp_path, LOSS)
    await_line(run, "up")
    description = CliRunner().invoke(show, [run.id]).stdout
    assert re.search(r"^  dashboard: http://127[.\d]+:\d+/status$", description, re.MULTILINE)
    (nanny,) = services_on(run, 1, "worker")
    found = processes_of(run.id, 1)
    (worker,) = (pid for pid in found if pid != nanny and "spawn_main" in found[pid])
    kill(worker)
    assert succeeded(run) == ["up", "lost one", "285"]


@needs_dask
@pytest.mark.slow
@pytest.mark.parametrize("max_restarts", [0, 1])
def test_a_killed_scheduler_restarts_or_fails_the_run(
    client: Client, tmp_path: Path, max_restarts: int
) -> None:
    """The program of the second attempt ends at once."""
    program = """
        print("attempt", os.environ["MUSTER_ATTEMPT"])
        while os.environ["MUSTER_ATTEMPT"] == "0":
            client.scheduler_info()
            time.sleep(0.1)
    """
    run = start(client, tmp_path, program, failure={"max_restarts": max_restarts})
    await_line(run, "attempt 0")
    (scheduler,) = services_on(run, 0, "scheduler")
    os.kill(scheduler, signal.SIGKILL)
    if max_restarts:
        assert succeeded(run) == ["attempt 1"]
        return
    assert run.wait(300).state == "FAILED"
    assert run.cause is not None
    assert (run.cause["rank"], run.cause["signal"]) == (0, 9)
    assert run.cause["message"].startswith("scheduler ended by itself (signal 9 ended it)")


@needs_dask
@pytest.mark.slow
def test_a_program_may_end_its_cluster(client: Client, tmp_path: Path) -> None:
    program = "print(client.submit(sum, [1, 2]).result()); client.shutdown()"
    assert succeeded(start(client, tmp_path, program)) == ["3"]


@needs_dask
@pytest.mark.slow
def test_a_worker_that_cannot_start_is_the_cause(client: Client, tmp_path: Path) -> None:
    run = start(client, tmp_path, "pass", framework_options={"worker_args": ["--bogus"]})
    assert run.wait(300).state == "FAILED"
    assert run.cause is not None
    assert run.cause["exit_code"] == 2
    assert "No such option" in run.cause["message"]
    assert messages(run) == []


@needs_dask
@pytest.mark.slow
def test_workers_that_do_not_join_are_named(client: Client, tmp_path: Path) -> None:
    late = """
        import os, sys, time
        if os.environ.get("NODE_RANK") == "1" and "worker" in sys.orig_argv:
            time.sleep(1000)
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(late))
    run = start(client, tmp_path, "print('never')", ready_timeout="60s")
    assert run.wait(300).state == "FAILED"
    assert run.cause is not None
    assert run.cause["reason"] == "startup_timeout"
    assert "Dask workers have not joined" in run.cause["message"]
    assert "node-1" in run.cause["message"]
    assert messages(run) == []


@needs_dask
@pytest.mark.slow
@pytest.mark.skipif(find_spec("lightgbm") is None, reason="LightGBM is not installed")
def test_the_example_trains_a_model(client: Client) -> None:
    job, new = client.job(EXAMPLE / "job.yaml")
    output = succeeded(client.start(client.prepare_run(job, overrides_from({}), new_job=new)))
    assert "3 workers: node-0, node-1, node-2" in output
    (accuracy,) = (float(m.split()[-1]) for m in output if m.startswith("test accuracy"))
    assert accuracy > 0.85


@pytest.mark.slow
@needs_dask
def test_each_replica_of_an_array_is_a_cluster(client: Client) -> None:
    """None of them is the one at which clients reach the run."""
    code = "from distributed import Client; print(Client().submit(sum, [1, 2]).result())"
    job, new = client.job(
        None, command=["python", "-c", code], framework="dask", array={"a": "1..2"}, parallelism=2
    )
    run = client.start(client.prepare_run(job, new_job=new)).wait(120)
    assert run.state == "SUCCEEDED", run.details
    lines = [(record.rank, record.message) for record in run.logs(streams=["stdout"])]
    assert sorted(lines) == [(0, "3"), (1, "3")]
