"""What the service says of a job run, and what that means for its nodes. Pure."""

from __future__ import annotations

import re

from msgspec import Struct

from muster.lifecycle.status import Reason

#: States in which no process of a job run is left, and in which it can be canceled.
OVER = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "DELETED"})
CANCELABLE = frozenset({"ACCEPTED", "IN_PROGRESS", "NEEDS_ATTENTION"})
#: What the service calls the limit by which it cancels job runs, in its details.
_TIME_LIMIT = re.compile(r"max\w* ?run ?time|time ?limit|timed? ?out|exceeded", re.IGNORECASE)


class JobRun(Struct, frozen=True):
    """A job run, as far as it is of interest."""

    id: str
    state: str
    #: The service's words; "" for none.
    details: str = ""
    #: The OCID of its log; "" while there is none.
    log: str = ""
    #: Node groups that are not as they should be: name, state and details.
    failed_groups: tuple[tuple[str, str, str], ...] = ()

    @property
    def over(self) -> bool:
        """Whether no process of it is left."""
        return self.state in OVER


def why_it_waits(run: JobRun) -> str:
    """Why the nodes of a job run have not started, as a phrase."""
    details = _sentence(run.details)
    if run.state == "NEEDS_ATTENTION":
        return f"its job run needs attention: {details or 'the service does not say why'}"
    if run.state == "IN_PROGRESS":
        return "the node program starts in the job run"
    return details or "the service provides its machine"


def is_ending(run: JobRun) -> bool:
    """Whether the service, or somebody, is ending it."""
    return run.state == "CANCELING"


def how_it_ended(run: JobRun) -> tuple[Reason, str]:
    """Why nodes have ended whose job run is over, or is being ended: the reason, and a sentence."""
    details = _sentence(run.details)
    where = f"job run {short_id(run.id)}"
    if run.state == "DELETED":
        return Reason.CANCELED, f"{where} was deleted in the service" + _after(details)
    if run.state in ("CANCELED", "CANCELING"):
        if _TIME_LIMIT.search(run.details):
            return Reason.DEADLINE, f"{where} has reached its maximum run time" + _after(details)
        return Reason.CANCELED, f"{where} was canceled in the service" + _after(details)
    if run.state == "FAILED":
        groups = [f"group {n}: {_sentence(why) or state}" for n, state, why in run.failed_groups]
        said = "; ".join(text for text in (details, *groups) if text)
        return Reason.NODE_LOST, f"{where} has failed" + _after(said)
    return Reason.NODE_LOST, f"{where} has ended ({run.state})" + _after(details)


def short_id(ocid: str) -> str:
    """The end of an OCID, as people compare them."""
    return f"...{ocid[-6:]}" if len(ocid) > 20 else ocid


def _after(details: str) -> str:
    return f": {details}" if details else ""


def _sentence(text: str) -> str:
    """The service's words within a sentence."""
    words = " ".join(text.split())
    return words.rstrip(".")
