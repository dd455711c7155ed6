"""Calls of the Data Science service, through Oracle's SDK. They block: threads make them.

Nothing else imports the SDK, which is in the extra `oci`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from muster.engines.oci.profile import OciProfile
from muster.engines.oci.refusals import CannotRun, refusal
from muster.engines.oci.states import CANCELABLE, JobRun

#: Seconds to connect, and to wait for an answer; and to try again within a call.
_CONNECT, _READ, _RETRY_FOR = 10.0, 60.0, 30
_ATTEMPTS = 4
#: What is of interest of an error of a connection.
_CAUSE = re.compile(r"\[Errno -?\d+\] ([^'\")]+)|Connection aborted\.', \w+\('([^']+)'")
#: Where the last line of a log is looked for: how long ago, and among how many lines.
_SEARCHED, _LINES = timedelta(days=1), 10
#: A variable that the SDK reads when it is imported.
_NO_SERVICES = "OCI_PYTHON_SDK_NO_SERVICE_IMPORTS"
_importing = threading.Lock()
_INSTALL = "the `oci` SDK is not installed: pip install 'muster-jobs[oci]'"


class Created(Struct, frozen=True):
    """What was created of a job and its run, and why not all of it."""

    job: str | None = None
    run: str | None = None
    error: CannotRun | None = None


class Service:
    """The service, with the credentials of a profile, which are read at the first call. Methods
    raise CannotRun, and may be called from several threads."""

    def __init__(self, profile: OciProfile) -> None:
        self._profile = profile
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}

    # --- jobs

    def create(
        self,
        job_details: Mapping[str, Any],
        run_details: Callable[[str], Mapping[str, Any]],
        artifact: Callable[[], bytes],
        file_name: str,
        *,
        again: bool,
    ) -> Created:
        """Create a job with its artifact, and a run of it. What an earlier call has created is
        found, by its name or its retry tokens. Raises nothing.

        run_details: gets the OCID of the job. again: there may have been such a call.
        """
        name, job, run = str(job_details["displayName"]), None, None
        try:
            if again:
                job = next(iter(self.jobs_named(name)), None)
                run = None if job is None else self._find_run(job)
            if job is None:
                job = self._create_job(job_details, name)
            if run is None:
                self._upload(job, artifact(), file_name)
                run = self._create_run(run_details(job), name)
        except CannotRun as error:
            return Created(job, run, error)
        return Created(job, run)

    def _create_job(self, details: Mapping[str, Any], name: str) -> str:
        made = self.call("create_job", create_job_details=details, opc_retry_token=f"{name}-job")
        return str(made.data.id)

    def _create_run(self, details: Mapping[str, Any], name: str) -> str:
        token = f"{name}-run"
        made = self.call("create_job_run", create_job_run_details=details, opc_retry_token=token)
        return str(made.data.id)

    def _upload(self, job: str, content: bytes, file_name: str) -> None:
        disposition = f"attachment; filename={file_name}"
        try:
            self.call("create_job_artifact", job, content, content_disposition=disposition)
        except CannotRun as error:
            if error.status != 409:  # it was uploaded before
                raise

    def _find_run(self, job: str) -> str | None:
        found = self._list("list_job_runs", job_id=job)
        return found[0].id if found else None

    def jobs_named(self, name: str) -> list[str]:
        """The jobs with this name that are not deleted."""
        found = self._list("list_jobs", display_name=name, lifecycle_state="ACTIVE")
        return [one.id for one in found]

    def run(self, run: str) -> JobRun:
        """A job run as it is now; DELETED if the service certainly has none."""
        try:
            return _job_run(self.call("get_job_run", run).data)
        except CannotRun as error:
            if not error.is_unknown:
                raise
        # the same answer has who may not see it: the list tells them apart
        for one in self._list("list_job_runs", id=run):
            return JobRun(run, one.lifecycle_state, one.lifecycle_details or "")
        return JobRun(run, "DELETED", "the service does not know it any more")

    def runs_of(self, job: str) -> list[JobRun]:
        """The runs of a job that are not deleted."""
        found = self._list("list_job_runs", job_id=job)
        return [
            JobRun(one.id, one.lifecycle_state, one.lifecycle_details or "")
            for one in found
            if one.lifecycle_state != "DELETED"
        ]

    def cancel(self, run: JobRun) -> None:
        """Have a job run end, if it can be canceled in its state."""
        if run.state not in CANCELABLE:
            return
        with contextlib.suppress(_Conflict):  # it has ended meanwhile
            self.call("cancel_job_run", run.id)

    def delete_job(self, job: str) -> bool:
        """Delete a job with its runs, which have ended. Returns False if that is not possible
        yet."""
        try:
            self.call("delete_job", job, delete_related_job_runs=True)
        except _Conflict:
            return False
        except CannotRun as error:
            if not error.is_unknown:
                raise
        return True

    # --- what else the engine looks at

    def project_name(self) -> str:
        """The name of the project in which jobs are created."""
        return str(self.call("get_project", self._profile.project).data.display_name)

    def shapes(self) -> list[str]:
        """The shapes that jobs may have."""
        found = self._list("list_job_shapes")
        return [str(one.name) for one in found]

    def count_runs(self) -> int:
        """How many job runs are in progress in the compartment."""
        return len(self._list("list_job_runs", lifecycle_state="IN_PROGRESS"))

    def clock(self) -> str:
        """What time it is for the service, as in the header `date`; "" if it does not say."""
        answer = self.call("list_job_shapes", self._profile.compartment, limit=1)
        return str(answer.headers.get("date", ""))

    def log_group_name(self, group: str) -> str:
        """The name of a log group."""
        return str(self.call("get_log_group", group, client="logging").data.display_name)

    def last_line(self, run: JobRun, group: str) -> str:
        """The last line of a job run's log that has arrived, in a log of this group; "" if none
        has."""
        now = datetime.now(UTC)
        log = f"{self._profile.compartment}/{group}/{run.log}"
        details = {
            "timeStart": (now - _SEARCHED).isoformat(timespec="milliseconds"),
            "timeEnd": now.isoformat(timespec="milliseconds"),
            "searchQuery": f"search \"{log}\" | where source = '*{run.id}' | sort by datetime desc",
        }
        found = self.call("search_logs", details, client="log_search", limit=_LINES).data.results
        lines = (one.data["logContent"]["data"].get("message", "") for one in found or ())
        return next((" ".join(str(line).split()) for line in lines if line), "")

    # --- calls

    def _list(self, operation: str, **filters: Any) -> list[Any]:
        """All that a list of the compartment has."""
        return self.pages(operation, self._profile.compartment, **filters)

    def pages(self, operation: str, *args: Any, **kwargs: Any) -> list[Any]:
        """All that a list has, over its pages. Arguments are as of `call`."""
        found: list[Any] = []
        page: dict[str, str] = {}
        while True:
            answer = self.call(operation, *args, **kwargs, **page)
            found += answer.data
            if not answer.has_next_page:
                return found
            page = {"page": answer.next_page}

    def call(self, operation: str, *args: Any, client: str = "data_science", **kwargs: Any) -> Any:
        """Call an operation of a client of the SDK."""
        with self._explained(operation):
            return getattr(self._client(client), operation)(*args, **kwargs)

    def download(self, operation: str, *args: Any, client: str, **kwargs: Any) -> bytes:
        """Call an operation whose answer is a file."""
        answer = self.call(operation, *args, client=client, **kwargs)
        with self._explained(operation):
            content: bytes = answer.data.content
            return content

    @contextlib.contextmanager
    def _explained(self, operation: str) -> Iterator[None]:
        """What goes wrong in the block is a CannotRun."""
        sdk = _sdk()
        try:
            yield
        except sdk.exceptions.ServiceError as error:
            if error.status == 401:
                self._forget()  # credentials may be renewed until the next call
            found = refusal(
                operation, error.status, error.code, error.message, self._profile.compartment
            )
            if error.status == 409 and found.refused:
                raise _Conflict(str(found), refused=True, status=409) from None
            raise found from None
        except sdk.exceptions.ClientError as error:  # the file with credentials, or its keys
            raise CannotRun(
                f"the credentials cannot be used: {_text(error)}", refused=True
            ) from None
        except (sdk.exceptions.RequestException, OSError) as error:
            raise CannotRun(f"the service does not answer: {_text(error)}", refused=False) from None
        except (ValueError, KeyError) as error:  # such as no region, or no file with a token
            raise _unusable(str(error)) from None

    def _client(self, name: str) -> Any:
        with self._lock:
            if name not in self._clients:
                self._clients[name] = _make_client(name, self._profile)
            return self._clients[name]

    def endpoint(self, client: str) -> str:
        """The URL of the service that a client calls."""
        with self._explained(client):
            return str(self._client(client).base_client.endpoint)

    def _forget(self) -> None:
        with self._lock:
            self._clients.clear()


class _Conflict(CannotRun):
    """What was asked for does not go with the state that something has for good."""


def _unusable(why: str) -> CannotRun:
    return CannotRun(f"the credentials cannot be used: {why}", refused=True)


def why_not_installed() -> str:
    """Why there is no SDK; "" if there is."""
    from importlib.util import find_spec

    return "" if find_spec("oci") is not None else _INSTALL


def _sdk() -> Any:
    with _importing, _without_services():
        try:
            import oci
            import oci.exceptions
        except ImportError:
            raise CannotRun(_INSTALL, refused=True) from None
    return oci


@contextlib.contextmanager
def _without_services() -> Iterator[None]:
    """The SDK, if it is imported now, imports no services, which takes seconds. Programs that this
    process starts later get it as they know it."""
    if "oci" in sys.modules:
        yield
        return
    before = os.environ.get(_NO_SERVICES)
    os.environ[_NO_SERVICES] = before or "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_SERVICES]


def _make_client(name: str, profile: OciProfile) -> Any:
    """A client of the SDK. Raises its errors, OSError, ValueError."""
    sdk = _sdk()
    import oci.circuit_breaker
    import oci.retry

    config, signer = _credentials(sdk, profile)
    retry = oci.retry.RetryStrategyBuilder(
        max_attempts=_ATTEMPTS, total_elapsed_time_seconds=_RETRY_FOR
    )
    options: dict[str, Any] = {
        "timeout": (_CONNECT, _READ),
        # whoever calls waits between calls
        "circuit_breaker_strategy": oci.circuit_breaker.NoCircuitBreakerStrategy(),
        "retry_strategy": retry.add_service_error_check(
            service_error_retry_config={409: ["IncorrectState", "LockConflict"], 429: []},
            service_error_retry_on_any_5xx=True,
        ).get_retry_strategy(),
    }
    if signer is not None:
        options["signer"] = signer
    if profile.endpoint is not None:
        options["service_endpoint"] = profile.endpoint
    if name == "log_search":
        from oci.loggingsearch import LogSearchClient

        return LogSearchClient(config, **options)
    if name == "logging":
        from oci.logging import LoggingManagementClient

        return LoggingManagementClient(config, **options)
    if name == "object_storage":
        from oci.object_storage import ObjectStorageClient

        return ObjectStorageClient(config, **options)
    from oci.data_science import DataScienceClient

    return DataScienceClient(config, **options)


def _credentials(sdk: Any, profile: OciProfile) -> tuple[dict[str, Any], Any]:
    """The configuration, and what signs if its key does not."""
    import oci.auth.signers

    region = {} if profile.region is None else {"region": profile.region}
    if profile.auth == "resource_principal":
        return region, oci.auth.signers.get_resource_principals_signer()
    if profile.auth == "instance_principal":
        return region, oci.auth.signers.InstancePrincipalsSecurityTokenSigner()
    import oci.config

    config = {**oci.config.from_file(profile.config, profile.config_profile), **region}
    if profile.auth == "api_key":
        return config, None
    import oci.signer

    with open(os.path.expanduser(config["security_token_file"]), encoding="utf-8") as file:
        token = file.read().strip()
    key = oci.signer.load_private_key_from_file(config["key_file"], config.get("pass_phrase"))
    return config, oci.auth.signers.SecurityTokenSigner(token, key)


def _job_run(found: Any) -> JobRun:
    """A job run of the SDK."""
    groups = tuple(
        (one.name, one.lifecycle_state, one.lifecycle_details or "")
        for one in found.node_group_details_list or ()
        if one.lifecycle_state == "FAILED"
    )
    log = found.log_details.log_id if found.log_details is not None else ""
    details = found.lifecycle_details or ""
    return JobRun(found.id, found.lifecycle_state, details, log or "", groups)


def _text(error: BaseException) -> str:
    """An error in a few words: it may be a page, with the errors that caused it."""
    first = error.args[0] if error.args else error
    if isinstance(first, dict):  # InvalidConfig: setting -> "missing" or "malformed"
        return ", ".join(f"{name} is {first[name]}" for name in sorted(first))
    text = str(first)
    if (found := _CAUSE.search(text)) is not None:
        return str(found[1] or found[2])
    return next(iter(text.strip().splitlines()), type(error).__name__)[:200]
