"""Parts of a Ray cluster that Ray's own commands lack.

    python -m muster.node.ray joined --address A:P node-0 node-1
    python -m muster.node.ray clients --address A:P --host A --port Q --node node-0
    python -m muster.node.ray serve --address A:P --host A --port Q --node node-0
    python -m muster.node.ray submit --dashboard http://A:P -- program

`joined` succeeds once all these nodes are alive, and names those that are not; the dashboard, which
knows them, may not run. `clients` serves drivers outside of the cluster. `serve` lets Ray Serve
listen, for applications that programs deploy with `serve.run`, and stays. `submit` runs a program
as a Ray job. Unlike `ray job submit`, it keeps the program's arguments apart, waits until Ray
accepts jobs, and exits with the program's exit code.

`adjust` is called by `ray start`, through RAY_START_HOOK.

Imported only where Ray is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
import time
from inspect import signature
from typing import Any, Callable, Dict, List, NoReturn

from muster.node.requirements import exit_with

#: Seconds that `joined` waits before it fails: every new try imports Ray again.
_JOIN_TIMEOUT = 30.0
#: Ray's error for some seconds, when its dashboard is up and its job agent is not.
_NO_AGENT_YET = "No available agent"
#: The ports of a node's agents, by the names of their options and of the files that hold them.
_AGENTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)


def adjust(parameters: Any, head: bool) -> None:
    """Remove time limits of `ray start` that a busy machine exceeds.

    It waits for its own node without a limit (Ray: 30 seconds) and not for its agents. It does not
    start the server for clients, which has 30 seconds, counted from before the dashboard starts,
    and ends the head node when they are over; `clients` replaces it.
    """
    from ray._private import services

    if head:
        parameters.ray_client_server_port = None
    services.get_node = _without_time_limit(services.get_node)
    services.start_raylet = _with_port_files(services.start_raylet)


def _with_port_files(start_raylet: Callable[..., Any]) -> Callable[..., Any]:
    """Write the files with the ports of the agents, as far as they were given.

    Agents write them when they have started, and a raylet aborts without them after 15 seconds.
    """

    def started(*args: Any, **more: Any) -> Any:
        given = signature(start_raylet).bind(*args, **more).arguments
        for name in _AGENTS:
            if given.get(name):
                path = os.path.join(given["session_dir"], "%s_%s" % (name, given["node_id"]))
                with open(path, "w") as file:
                    file.write(str(given[name]))
        return start_raylet(*args, **more)

    return started


def _without_time_limit(get_node: Callable[..., Any]) -> Callable[..., Any]:
    def found(*args: Any, **more: Any) -> Any:
        while True:
            try:
                return get_node(*args, **more)
            except RuntimeError:
                if _lost_child():
                    raise
                time.sleep(0.1)

    return found


def _lost_child() -> bool:
    """Whether a child of this process has ended. It is not reaped."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_ALL, 0, flags) is not None


def _alive(address: str) -> Dict[str, str]:
    """The ids of the nodes that are alive, by name."""
    from ray._raylet import GcsClient
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    nodes = GcsClient(address=address).get_all_node_info(timeout=_JOIN_TIMEOUT).values()
    alive = [node for node in nodes if node.state == GcsNodeInfo.ALIVE]
    return {node.node_name: node.node_id.hex() for node in alive}


def joined(options: argparse.Namespace) -> int:
    """Wait until all nodes are alive. Returns the exit code."""
    until = time.monotonic() + _JOIN_TIMEOUT
    while True:
        alive = _alive(options.address)
        missing = [name for name in options.names if name not in alive]
        if not missing:
            return 0
        if time.monotonic() >= until:
            names = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
            sys.stdout.write("%d have not joined: %s\n" % (len(missing), names))
            return 1
        time.sleep(0.05)


def clients(options: argparse.Namespace) -> NoReturn:
    """Become Ray's server for clients, once its node is alive."""
    while options.node not in (alive := _alive(options.address)):
        time.sleep(0.05)
    where = ["--address", options.address, "--host", options.host, "--port", str(options.port)]
    server = ["-m", "ray.util.client.server", "--node-id", alive[options.node], *where]
    os.execv(sys.executable, [sys.executable, *server])


def serve(options: argparse.Namespace) -> NoReturn:
    """Start Ray Serve, whose actors stay, and become an idle process."""
    try:
        import ray
        from ray import serve as ray_serve
    except ModuleNotFoundError as error:
        exit_with("no Ray Serve for %s (%s): pip install 'ray[serve]'" % (sys.executable, error))
    while options.node not in _alive(options.address):
        time.sleep(0.05)
    ray.init(address=options.address, namespace="serve", log_to_driver=False)
    # nodes may share a network, where only one of them can use the port
    listening = {"host": options.host, "port": options.port}
    ray_serve.start(proxy_location="HeadOnly", http_options=listening)
    ray.shutdown()
    os.execv(sys.executable, [sys.executable, "-S", "-c", "import signal; signal.pause()"])


def submit(options: argparse.Namespace) -> int:
    """Run the program as a Ray job. Returns its exit code."""
    from ray.job_submission import JobStatus, JobSubmissionClient

    client = JobSubmissionClient(options.dashboard)
    job = _submit_job(client, shlex.join(options.program))

    def stop(number: int, _frame: Any) -> NoReturn:
        client.stop_job(job)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    asyncio.run(_follow(client, job))
    info = client.get_job_info(job)
    if info.status == JobStatus.SUCCEEDED:
        return 0
    sys.stderr.write("%s\n" % info.message)
    return info.driver_exit_code or 1


def _submit_job(client: Any, program: str) -> str:
    """Submit the job, waiting until Ray accepts jobs; returns its id."""
    name = "%s-%s" % (os.environ["MUSTER_RUN_NAME"], os.environ["MUSTER_ATTEMPT"])
    while True:
        try:
            return str(client.submit_job(entrypoint=program, submission_id=name))
        except RuntimeError as error:
            if _NO_AGENT_YET not in str(error):
                raise


async def _follow(client: Any, job: str) -> None:
    """Print the job's output until it has ended."""
    async for text in client.tail_job_logs(job):
        sys.stdout.write(text)
        sys.stdout.flush()


def main(argv: List[str]) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="muster.node.ray")
    commands = parser.add_subparsers(required=True)
    look = commands.add_parser("joined")
    look.set_defaults(run=joined)
    look.add_argument("--address", required=True)
    look.add_argument("names", nargs="+")
    for name, run in (("clients", clients), ("serve", serve)):
        server = commands.add_parser(name)
        server.set_defaults(run=run)
        server.add_argument("--address", required=True)
        server.add_argument("--host", required=True)
        server.add_argument("--port", type=int, required=True)
        server.add_argument("--node", required=True, help="its name")
    job = commands.add_parser("submit")
    job.set_defaults(run=submit)
    job.add_argument("--dashboard", required=True)
    job.add_argument("program", nargs="+")
    options = parser.parse_args(argv)
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
