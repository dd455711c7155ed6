"""Rules on names in a JobSet or Job: their characters, and the length of names derived from them.

JobSet: a Job is named <jobset>-<replicatedjob>-<job>. A pod's host name adds the pod's index, and
its name five more characters. All are RFC 1035 labels.

Kubernetes: the name of another Job is an RFC 1123 subdomain that fits into a label. The pods of an
Indexed Job have the host names <job>-<index>, which are RFC 1123 labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.errors import Problem
from muster.spec.formats.jobset.model import CONTROLLER, JobSet, ReplicatedJob
from muster.spec.formats.jobset.single_job import CONTROLLER as JOB_CONTROLLER
from muster.spec.formats.jobset.single_job import SingleJob
from muster.spec.values import LABEL_HINT
from muster.spec.wording import short

MAX_LENGTH = 63
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PART = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RULE = "use lower-case letters, digits and -, start with a letter, end with a letter or digit"
_JOB_RULE = "use lower-case letters, digits and -, start and end with a letter or digit"
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
#: What the API server appends to generateName, and a Job to the names of its pods.
_GENERATED = "xxxxx"


def rj_path(number: int) -> str:
    """The path of a replicated Job in the manifest."""
    return f"spec.replicatedJobs[{number}]"


def label(path: str, name: str, what: str) -> Iterator[Problem]:
    """Problems of a name that must be a label. what: the object it names, for messages."""
    if not _LABEL.fullmatch(name):
        yield Problem(path, f"{short(name)} cannot name {what}", _RULE)
    elif len(name) > MAX_LENGTH:
        text = f"{short(name)} has {len(name)} characters, {what} may have {MAX_LENGTH}"
        yield Problem(path, text, "shorten it")


def name_problems(jobset: JobSet) -> Iterator[Problem]:
    """Problems of the names of the JobSet, its replicated Jobs, and their Jobs and pods."""
    if isinstance(jobset, SingleJob):
        yield from _job_names(jobset)
        return
    meta = jobset.metadata
    if not jobset.name:
        yield Problem("metadata.name", "is missing", "every JobSet has a name")
        return
    base = meta.name or meta.generate_name + _GENERATED
    own = list(label("metadata.name" if meta.name else "metadata.generateName", base, "a JobSet"))
    yield from own
    for number, rj in enumerate(jobset.spec.replicated_jobs):
        path = f"{rj_path(number)}.name"
        if rj.name and not _PART.fullmatch(
            rj.name
        ):  # JobSet: without a name, Jobs are called <jobset>--0
            yield Problem(path, f"{short(rj.name)} cannot name a replicated Job", _RULE)
        elif not own:
            yield from _derived_names(path, base, rj)
        yield from label(f"{rj_path(number)}.groupName", rj.group_name, "a group")
    yield from _network(jobset)
    yield from _manager(jobset.spec.managed_by, CONTROLLER, "JobSet")


def _job_names(single: SingleJob) -> Iterator[Problem]:
    """Problems of the names of a Job and its pods."""
    meta, job = single.metadata, single.job
    path = "metadata.name" if meta.name else "metadata.generateName"
    name = meta.name or meta.generate_name + _GENERATED
    indexed = job.completion_mode == "Indexed"
    if not single.name:
        yield Problem("metadata.name", "is missing", "every Job has a name")
    elif not (_PART if indexed else _SUBDOMAIN).fullmatch(name):
        what = "an Indexed Job" if indexed else "a Job"
        yield Problem(path, f"{short(name)} cannot name {what}", _JOB_RULE)
    elif meta.name and len(name) > MAX_LENGTH:
        text = f"has {len(name)} characters, a Job's name may have {MAX_LENGTH}"
        yield Problem(path, text, "shorten it")
    elif indexed and len(last := f"{name}-{max((job.completions or 1) - 1, 0)}") > MAX_LENGTH:
        text = f"its pod {short(last)} would have a host name of {len(last)} characters"
        yield Problem(path, text, f"{MAX_LENGTH} are allowed: shorten it")
    subdomain = single.spec.network.subdomain
    if subdomain and not (_PART.fullmatch(subdomain) and len(subdomain) <= MAX_LENGTH):
        text = f"{short(subdomain)} cannot name a subdomain"
        yield Problem("spec.network.subdomain", text, LABEL_HINT)
    yield from _manager(single.spec.managed_by, JOB_CONTROLLER, "Job")


def _derived_names(path: str, jobset: str, rj: ReplicatedJob) -> Iterator[Problem]:
    job = f"{jobset}-{rj.name}-{max(rj.replicas - 1, 0)}"
    completions = rj.template.spec.completions
    indexed = rj.template.spec.completion_mode == "Indexed"
    if len(job) > MAX_LENGTH:
        text = f"its Job {short(job)} would have a name of {len(job)} characters"
        yield Problem(path, text, f"{MAX_LENGTH} are allowed: shorten it, or the JobSet's name")
    elif indexed and completions is not None:
        pod = f"{job}-{max(completions - 1, 0)}-{_GENERATED}"
        if len(pod) > MAX_LENGTH:
            text = f"its pod {short(pod)} would have a name of {len(pod)} characters"
            yield Problem(path, text, f"{MAX_LENGTH} are allowed: shorten it, or the JobSet's name")


def _network(jobset: JobSet) -> Iterator[Problem]:
    if jobset.spec.network.subdomain:
        yield from label("spec.network.subdomain", jobset.spec.network.subdomain, "a subdomain")


def _manager(managed_by: str | None, own: str, what: str) -> Iterator[Problem]:
    """Problems of the controller of an object. own: the one that Muster stands in for."""
    if managed_by in (None, own):
        return
    path = "spec.managedBy"
    domain, slash, rest = managed_by.partition("/") if managed_by else ("", "", "")
    if not (slash and _SUBDOMAIN.fullmatch(domain) and _PATH.fullmatch(rest)):
        text = f"{short(managed_by)} is not a controller's name"
        yield Problem(path, text, "they look like example.com/name")
    elif managed_by and len(managed_by) > MAX_LENGTH:
        yield Problem(path, f"has {len(managed_by)} characters", f"{MAX_LENGTH} are allowed")
    else:
        text = f"another controller, {managed_by}, manages this {what}"
        yield Problem(path, text, "remove the field to run it with Muster")


def claim_name(path: str, name: str, jobset: str) -> Iterator[Problem]:
    """Problems of a claim template's name. JobSet: a claim is named <template>-<jobset>."""
    if not _SUBDOMAIN.fullmatch(name):
        yield Problem(path, f"{short(name)} cannot name a claim" if name else "is missing", _RULE)
    elif len(f"{name}-{jobset}") > MAX_LENGTH:
        text = f"its claim {short(f'{name}-{jobset}')} would have too long a name"
        yield Problem(path, text, f"{MAX_LENGTH} characters are allowed: shorten it")


def kubernetes_label(text: str, longest: int = 63) -> str:
    """The label that Kubernetes accepts and that is most like `text`."""
    cleaned = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
    named = cleaned if cleaned[:1].isalpha() else f"v-{cleaned}"
    return named[:longest].rstrip("-")
