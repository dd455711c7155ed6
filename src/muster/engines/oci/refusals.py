"""Why the service, or the way to it, did not do what was asked, for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping

#: Codes of errors 400 and 409 that pass by themselves, or when somebody else ends something.
_PASSING = frozenset({"LimitExceeded", "QuotaExceeded", "IncorrectState", "LockConflict"})
#: Operation -> what a policy has to allow for it.
_PERMISSIONS: Mapping[str, str] = {
    "create_job": "manage data-science-jobs and read data-science-projects",
    "create_job_artifact": "manage data-science-jobs",
    "create_job_run": "manage data-science-job-runs and read data-science-jobs"
    " (with a subnet also use virtual-network-family, with a log use log-groups)",
    "cancel_job_run": "manage data-science-job-runs",
    "delete_job": "manage data-science-jobs and manage data-science-job-runs",
    "list_jobs": "inspect data-science-jobs",
    "list_job_runs": "inspect data-science-job-runs",
    "get_job_run": "read data-science-job-runs",
    "get_project": "read data-science-projects",
    "list_job_shapes": "inspect data-science-jobs",
    "get_log_group": "read log-groups",
    "search_logs": "read log-content",
    **dict.fromkeys(("put_object", "get_object", "delete_object"), "manage objects"),
    "list_objects": "inspect objects",
    "create_preauthenticated_request": "manage buckets and manage objects",
    "list_preauthenticated_requests": "manage buckets",
    "delete_preauthenticated_request": "manage buckets",
}


class CannotRun(Exception):  # noqa: N818
    """The service was not reached, or has refused. The text says why, for people.

    refused: whether it would do so again. status: of its answer; None: it has not answered.
    """

    def __init__(self, text: str, *, refused: bool, status: int | None = None) -> None:
        super().__init__(text)
        self.refused, self.status = refused, status

    @property
    def is_unknown(self) -> bool:
        """Whether what was asked about does not exist, or may not be seen."""
        return self.status == 404


def refusal(operation: str, status: int, code: str, message: str, compartment: str) -> CannotRun:
    """What an answer with an error means. operation: the method of the SDK."""
    words = " ".join(message.split()).rstrip(".")
    if status == 401:
        text = (
            f"the service does not accept the credentials ({code}: {words}): renew them (`oci "
            "session authenticate` for tokens), or check key, fingerprint and this machine's clock"
        )
        return CannotRun(text, refused=True, status=status)
    if status == 404:
        need = _PERMISSIONS.get(operation, "manage data-science-family")
        text = (
            f"the service answers {code}: what was named does not exist, or a policy is missing: "
            f"allow group GROUP to {need} in compartment id {compartment}"
        )
        return CannotRun(text, refused=True, status=status)
    if status == 429:
        text = f"too many requests at a time ({code}: {words}); it is asked again"
        return CannotRun(text, refused=False, status=status)
    passing = status >= 500 and status != 501
    passing = passing or (status in (400, 409) and code in _PASSING)
    return CannotRun(f"{words} ({status} {code})", refused=not passing, status=status)
