"""Names in a JobSet: what they are made of, and how long they may become.

JobSet: a Job is <jobset>-<replicatedjob>-<job>, a pod's host name adds its index, its name five
characters more. All of them are RFC 1035 labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.errors import Problem
from muster.spec.formats.jobset_model import CONTROLLER, JobSet, ReplicatedJob
from muster.spec.wording import short

LONGEST = 63
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PART = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RULE = "use lower-case letters, digits and -, from a letter to a letter or digit"
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
#: What the API server appends to generateName, and a Job to the names of its pods.
_GENERATED = "xxxxx"


def rj_path(number: int) -> str:
    """Where a replicated Job stands."""
    return f"spec.replicatedJobs[{number}]"


def label(path: str, name: str, what: str) -> Iterator[Problem]:
    """What is wrong with a name that has to be a label."""
    if not _LABEL.fullmatch(name):
        yield Problem(path, f"{short(name)} cannot name {what}", _RULE)
    elif len(name) > LONGEST:
        text = f"{short(name)} has {len(name)} characters, {what} may have {LONGEST}"
        yield Problem(path, text, "shorten it")


def names(jobset: JobSet) -> Iterator[Problem]:
    """Of the JobSet, its replicated Jobs and everything that is called after them."""
    meta = jobset.metadata
    if not jobset.name:
        yield Problem("metadata.name", "is missing", "every JobSet has a name")
        return
    base = meta.name or meta.generate_name + _GENERATED
    own = list(label("metadata.name" if meta.name else "metadata.generateName", base, "a JobSet"))
    yield from own
    for number, rj in enumerate(jobset.spec.replicated_jobs):
        path = f"{rj_path(number)}.name"
        if rj.name and not _PART.fullmatch(rj.name):  # JobSet: without one, js--0 will do
            yield Problem(path, f"{short(rj.name)} cannot name a replicated Job", _RULE)
        elif not own:
            yield from _made(path, base, rj)
        yield from label(f"{rj_path(number)}.groupName", rj.group_name, "a group")
    yield from _network(jobset)
    yield from _manager(jobset.spec.managed_by)


def _made(path: str, jobset: str, rj: ReplicatedJob) -> Iterator[Problem]:
    job = f"{jobset}-{rj.name}-{max(rj.replicas - 1, 0)}"
    completions = rj.template.spec.completions
    indexed = rj.template.spec.completion_mode == "Indexed"
    if len(job) > LONGEST:
        text = f"its Job {short(job)} would have a name of {len(job)} characters"
        yield Problem(path, text, f"{LONGEST} are allowed: shorten it, or the JobSet's name")
    elif indexed and completions is not None:
        pod = f"{job}-{max(completions - 1, 0)}-{_GENERATED}"
        if len(pod) > LONGEST:
            text = f"its pod {short(pod)} would have a name of {len(pod)} characters"
            yield Problem(path, text, f"{LONGEST} are allowed: shorten it, or the JobSet's name")


def _network(jobset: JobSet) -> Iterator[Problem]:
    if jobset.spec.network.subdomain:
        yield from label("spec.network.subdomain", jobset.spec.network.subdomain, "a subdomain")


def _manager(managed_by: str | None) -> Iterator[Problem]:
    if managed_by in (None, CONTROLLER):
        return
    path = "spec.managedBy"
    domain, slash, rest = managed_by.partition("/") if managed_by else ("", "", "")
    if not (slash and _SUBDOMAIN.fullmatch(domain) and _PATH.fullmatch(rest)):
        text = f"{short(managed_by)} is no controller's name"
        yield Problem(path, text, "they look like example.com/name")
    elif managed_by and len(managed_by) > LONGEST:
        yield Problem(path, f"has {len(managed_by)} characters", f"{LONGEST} are allowed")
    else:
        text = f"it is left to {managed_by}, and Muster would not be asked"
        yield Problem(path, text, "remove it to have Muster run it")


def claim_name(path: str, name: str, jobset: str) -> Iterator[Problem]:
    """What is wrong with the name of a claim template. JobSet: a claim is <template>-<jobset>."""
    if not _SUBDOMAIN.fullmatch(name):
        yield Problem(path, f"{short(name)} cannot name a claim" if name else "is missing", _RULE)
    elif len(f"{name}-{jobset}") > LONGEST:
        text = f"its claim {short(f'{name}-{jobset}')} would have too long a name"
        yield Problem(path, text, f"{LONGEST} characters are allowed: shorten it")
