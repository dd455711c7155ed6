"""The OCI API: `python bench/oci_api.py [NAME ...]`, where NAME is a function of this file.

Clients are those of OCI's SDK for Python (`pip install oci`).
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

from common import MUSTER, compare, fresh_home

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from muster.iam.principals import Principals, SignedRequest
from muster.iam.signatures import parse_authorization
from muster.identity import user_name
from muster.service.backend import Backend
from muster.service.sessions import session_tokens
from muster.spec.ocids import TENANCY
from muster.storage.home import Home
from muster.store.resource_records import ResourceRecord
from support.oci_config import add_key

PORT = 26431
PROGRAM = b"print('done')\n"
CHECKS = 3000


def signature() -> None:
    """How long it takes to verify a request whose key is remembered, and where that is done."""
    import requests
    from oci.signer import Signer

    with fresh_home() as folder:
        backend = Backend(Home(folder))
        config = add_key(backend.store, _user(backend), folder)
        signer = Signer(*(config[one] for one in ("tenancy", "user", "fingerprint", "key_file")))
        body = b'{"compartmentId": "' + TENANCY.encode() + b'"}'
        headers = {"date": formatdate(usegmt=True), "content-type": "application/json"}
        prepared = requests.Request("POST", "http://127.0.0.1/20190101/jobs", headers, data=body)
        made = signer.do_request_sign(prepared.prepare())
        sent = [(k.lower().encode(), _bytes(v)) for k, v in made.headers.items()]
        request = SignedRequest("POST", "/20190101/jobs", sent, body)
        principals = Principals(lambda: backend.store, session_tokens(backend.home))

        def check() -> None:
            signature = parse_authorization(request.header("authorization"))
            principals.authenticate(signature, request, time.time())

        check()
        alone, processor = _each(check, time.perf_counter), _each(check, time.process_time)
        loop = asyncio.run(_in_loop(check, thread=False))
        thread = asyncio.run(_in_loop(check, thread=True))
        backend.close()
    print(f"\nverify a signed request (RSA 2048, {len(body)} bytes of body)")
    print(f"  by itself                  {alone * 1e6:7.0f} µs")
    print(f"  CPU time of that           {processor * 1e6:7.0f} µs")
    print(f"    in the event loop        {loop * 1e6:7.0f} µs")
    print(f"    in a thread, and back    {thread * 1e6:7.0f} µs")


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _each(check: Callable[[], None], clock: Callable[[], float]) -> float:
    """Seconds of one on a clock, the median of several rounds."""
    rounds = []
    for _ in range(5):
        start = clock()
        for _ in range(CHECKS // 5):
            check()
        rounds.append((clock() - start) / (CHECKS // 5))
    return statistics.median(rounds)


async def _in_loop(check: Callable[[], None], *, thread: bool) -> float:
    """CPU time of one from an event loop, in seconds."""
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(4)
    start = time.process_time()
    for _ in range(CHECKS):
        if thread:
            await loop.run_in_executor(pool, check)
        else:
            check()
            await asyncio.sleep(0)
    took = (time.process_time() - start) / CHECKS
    pool.shutdown()
    return took


def listing() -> None:
    """All of 1,000 job runs, by the SDK's paginator."""
    import oci

    with _serving() as (backend, config):
        now = time.time()
        details = {"projectId": TENANCY, "jobId": TENANCY, "finishedAt": now}
        for number in range(1000):
            backend.store.resources.insert(
                ResourceRecord(
                    *("datasciencejobrun", f"r{number:09d}", "default", f"run-{number}", "DELETED"),
                    *(_user(backend), now + number, now, details),
                )
            )
        client = _client(config)
        call = client.list_job_runs

        def all_of(limit: int) -> Callable[[], float]:
            def measure() -> float:
                start = time.perf_counter()
                found = oci.pagination.list_call_get_all_results(call, TENANCY, limit=limit).data
                assert len(found) == 1000
                return time.perf_counter() - start

            return measure

        compare(
            "list 1,000 job runs with the SDK",
            {"one page": all_of(1000), "pages of 100": all_of(100)},
        )


def lifecycle() -> None:
    """From the creation of a job until its run has succeeded, beside `muster run`."""
    with _serving() as (_, config):
        client = _client(config)
        models = sys.modules["oci"].data_science.models
        project = client.create_project(models.CreateProjectDetails(compartment_id=TENANCY)).data.id
        infrastructure = models.ManagedEgressStandaloneJobInfrastructureConfigurationDetails(
            shape_name="VM.Standard.E4.Flex",
            block_storage_size_in_gbs=50,
            job_shape_config_details=models.JobShapeConfigDetails(ocpus=1, memory_in_gbs=1),
        )
        job = models.CreateJobDetails(
            project_id=project,
            compartment_id=TENANCY,
            job_configuration_details=models.DefaultJobConfigurationDetails(),
            job_infrastructure_configuration_details=infrastructure,
        )

        def through_oci() -> float:
            start = time.perf_counter()
            job_id = client.create_job(job).data.id
            named = "attachment; filename=main.py"
            client.create_job_artifact(job_id, PROGRAM, content_disposition=named)
            run = models.CreateJobRunDetails(
                project_id=project, compartment_id=TENANCY, job_id=job_id
            )
            run_id = client.create_job_run(run).data.id
            while (found := client.get_job_run(run_id).data).lifecycle_state != "SUCCEEDED":
                assert found.lifecycle_state in ("ACCEPTED", "IN_PROGRESS"), found
                time.sleep(0.02)
            return time.perf_counter() - start

        with fresh_home() as folder:
            program = folder / "main.py"
            program.write_bytes(PROGRAM)

            def native() -> float:
                start = time.perf_counter()
                subprocess.run([MUSTER, "run", program], capture_output=True, check=True)
                return time.perf_counter() - start

            compare(
                "a job until it has succeeded",
                {"muster run": native, "OCI's SDK": through_oci},
            )


@contextmanager
def _serving() -> Iterator[tuple[Backend, dict[str, Any]]]:
    """A server, and the configuration of a client."""
    with fresh_home() as folder:
        backend = Backend(Home(folder))
        config = add_key(backend.store, _user(backend), folder)
        (folder / "server.toml").write_text("separate_owners = false\n")
        argv = [MUSTER, "server", "--port", str(PORT)]
        with open(folder / "log", "wb") as log, subprocess.Popen(argv, stderr=log) as server:
            try:
                _wait(folder / "log")
                yield backend, config
            finally:
                server.terminate()
        backend.close()


def _wait(log: Path) -> None:
    deadline = time.monotonic() + 30
    while str(PORT) not in log.read_text():
        if time.monotonic() > deadline:
            raise SystemExit(log.read_text())
        time.sleep(0.05)


def _user(backend: Backend) -> str:
    """An administrator, created if there is none."""
    from muster.store.account_records import UserKind, UserRecord

    name = user_name()
    if name not in [user.name for user in backend.store.accounts.users()]:
        record = UserRecord(name, UserKind.PERSON, time.time(), admin=True)
        backend.store.accounts.create_user(record)
    return name


def _client(config: dict[str, Any]) -> Any:
    import oci

    return oci.data_science.DataScienceClient(config, service_endpoint=f"http://127.0.0.1:{PORT}")


if __name__ == "__main__":
    for name in sys.argv[1:] or ("signature", "listing", "lifecycle"):
        globals()[name]()
