"""What a Ray cluster needs that Ray's own commands do not do.

    python -m muster.node.ray joined --address A:P node-0 node-1
    python -m muster.node.ray clients --address A:P --host A --port Q --node node-0
    python -m muster.node.ray serve --address A:P --host A --port Q --node node-0
    python -m muster.node.ray submit --dashboard http://A:P -- words

`joined` succeeds once all these nodes are alive, and tells who is not: what the dashboard would,
where there is none. `clients` serves drivers from outside. `serve` has Ray Serve listen there, for
what programs deploy with `serve.run`, and stays. `submit` runs a program as a job of
Ray's. Other than `ray job submit`, it keeps the program's words apart, waits until Ray can take
jobs, and ends with its exit code.

`adjust` is for `ray start`, which calls what RAY_START_HOOK names.

It runs where Ray is installed, and is not imported elsewhere.
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

from muster.node.needs import refuse

#: Seconds for which `joined` looks before it says no: to ask again costs importing Ray.
_LOOKING = 30.0
#: What Ray says, for seconds, when its dashboard is up and what runs jobs is not.
_NOT_YET = "No available agent"
#: What the ports of a node's agents are called, and the files that tell them.
_AGENTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)


def adjust(parameters: Any, head: bool) -> None:
    """Have `ray start` wait for its own node as long as that takes, instead of 30 seconds; have
    that not wait for its agents; and leave the server of clients alone, which has 30 seconds from
    before the dashboard starts, and takes the head with it when they are over. On a busy machine
    none of these is enough."""
    from ray._private import services

    if head:
        parameters.ray_client_server_port = None
    services.get_node = _patient(services.get_node)
    services.start_raylet = _knowing(services.start_raylet)


def _knowing(start_raylet: Callable[..., Any]) -> Callable[..., Any]:
    """Agents write down which ports they have taken, and a raylet aborts without that after 15
    seconds. Where the ports were given, it is known before."""

    def started(*args: Any, **more: Any) -> Any:
        asked = signature(start_raylet).bind(*args, **more).arguments
        for name in _AGENTS:
            if asked.get(name):
                path = os.path.join(asked["session_dir"], "%s_%s" % (name, asked["node_id"]))
                with open(path, "w") as file:
                    file.write(str(asked[name]))
        return start_raylet(*args, **more)

    return started


def _patient(get_node: Callable[..., Any]) -> Callable[..., Any]:
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
    """Whether a process that we have started has ended; whoever waits for it still can."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_ALL, 0, flags) is not None


def _alive(address: str) -> Dict[str, str]:
    """The nodes that are alive: name -> id."""
    from ray._raylet import GcsClient
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    nodes = GcsClient(address=address).get_all_node_info(timeout=_LOOKING).values()
    alive = [node for node in nodes if node.state == GcsNodeInfo.ALIVE]
    return {node.node_name: node.node_id.hex() for node in alive}


def joined(asked: argparse.Namespace) -> int:
    """Whether all are alive."""
    until = time.monotonic() + _LOOKING
    while True:
        alive = _alive(asked.address)
        missing = [name for name in asked.names if name not in alive]
        if not missing:
            return 0
        if time.monotonic() >= until:
            names = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
            sys.stdout.write("%d have not joined: %s\n" % (len(missing), names))
            return 1
        time.sleep(0.05)


def clients(asked: argparse.Namespace) -> NoReturn:
    """Become Ray's server of clients, once the node it is on is alive."""
    while asked.node not in (alive := _alive(asked.address)):
        time.sleep(0.05)
    where = ["--address", asked.address, "--host", asked.host, "--port", str(asked.port)]
    server = ["-m", "ray.util.client.server", "--node-id", alive[asked.node], *where]
    os.execv(sys.executable, [sys.executable, *server])


def serve(asked: argparse.Namespace) -> NoReturn:
    """Start Ray Serve, whose actors stay, and become a process that does nothing."""
    try:
        import ray
        from ray import serve as ray_serve
    except ModuleNotFoundError as error:
        refuse("no Ray Serve for %s (%s): pip install 'ray[serve]'" % (sys.executable, error))
    while asked.node not in _alive(asked.address):
        time.sleep(0.05)
    ray.init(address=asked.address, namespace="serve", log_to_driver=False)
    # other nodes might share this one's network, where only one can have the port
    listening = {"host": asked.host, "port": asked.port}
    ray_serve.start(proxy_location="HeadOnly", http_options=listening)
    ray.shutdown()
    os.execv(sys.executable, [sys.executable, "-S", "-c", "import signal; signal.pause()"])


def submit(asked: argparse.Namespace) -> int:
    """Run the program. Returns its exit code."""
    from ray.job_submission import JobStatus, JobSubmissionClient

    client = JobSubmissionClient(asked.dashboard)
    job = _submitted(client, shlex.join(asked.program))

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


def _submitted(client: Any, program: str) -> str:
    """The job's id, once Ray has taken it."""
    name = "%s-%s" % (os.environ["MUSTER_RUN_NAME"], os.environ["MUSTER_ATTEMPT"])
    while True:
        try:
            return str(client.submit_job(entrypoint=program, submission_id=name))
        except RuntimeError as error:
            if _NOT_YET not in str(error):
                raise


async def _follow(client: Any, job: str) -> None:
    """Say what it says, until it has ended."""
    async for words in client.tail_job_logs(job):
        sys.stdout.write(words)
        sys.stdout.flush()


def main(words: List[str]) -> int:
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
    asked = parser.parse_args(words)
    code: int = asked.run(asked)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
