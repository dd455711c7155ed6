"""Check the rules that concern several fields of a JobSet.

These are the rules of JobSet's webhook, and cases that JobSet accepts although they can never
finish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from muster.errors import Problem
from muster.spec.formats.jobset.failure_rules import failure_problems
from muster.spec.formats.jobset.job_arrays import backoff_limit, is_array
from muster.spec.formats.jobset.job_rules import job_problems
from muster.spec.formats.jobset.kubernetes_limits import MAX_INT32
from muster.spec.formats.jobset.model import JobSet, ReplicatedJob
from muster.spec.formats.jobset.name_rules import MAX_LENGTH, claim_name, name_problems, rj_path
from muster.spec.wording import short, suggestion


def check_jobset(jobset: JobSet, *, names_known: bool = True) -> list[Problem]:
    """Every problem. names_known: whether the names of all replicated Jobs could be read."""
    spec = jobset.spec
    wrong = [
        *name_problems(jobset),
        *failure_problems(spec.failure_policy, spec.replicated_jobs),
        *(p for i, rj in enumerate(spec.replicated_jobs) for p in job_problems(rj, rj_path(i))),
        *_in_place(jobset),
        *_deadlines(jobset),
        *_claims(jobset),
    ]
    if names_known:
        wrong += [
            *_sizes(jobset),
            *_order(jobset),
            *_success(jobset),
            *_targets(jobset),
            *_coordinator(jobset),
        ]
    return wrong


def _sizes(jobset: JobSet) -> Iterator[Problem]:
    jobs = jobset.spec.replicated_jobs
    if not jobs:
        text = "is empty: a JobSet without replicated Jobs never finishes"
        yield Problem("spec.replicatedJobs", text, "add one")
    elif all(rj.replicas == 0 for rj in jobs):
        text = "all have 0 replicas: the JobSet would never finish"
        yield Problem("spec.replicatedJobs", text, "give one of them replicas")
    for number, rj in enumerate(jobs):
        parallelism = rj.template.spec.parallelism
        if rj.replicas * (1 if parallelism is None else parallelism) > MAX_INT32:
            text = f"{rj.replicas:,} replicas of {parallelism:,} pods each"
            hint = f"a replicated Job can have {MAX_INT32:,} pods"
            yield Problem(f"{rj_path(number)}.replicas", text, hint)


def _order(jobset: JobSet) -> Iterator[Problem]:
    startup = jobset.spec.startup_policy
    in_order = startup is not None and startup.startup_policy_order == "InOrder"
    jobs = jobset.spec.replicated_jobs
    earlier: list[str] = []
    for number, rj in enumerate(jobs):
        path = f"{rj_path(number)}.dependsOn"
        if rj.depends_on and in_order:
            text = "conflicts with startupPolicy InOrder, which sets the whole order"
            yield Problem(path, text, "keep one; dependsOn is the newer of them")
        if rj.depends_on and number == 0:
            yield Problem(path, "the first replicated Job cannot depend on another", "remove it")
        for place, other in enumerate(rj.depends_on if number else ()):
            if other.name not in earlier:
                yield _not_earlier(f"{path}[{place}].name", other.name, rj, jobs)
        earlier.append(rj.name)


def _not_earlier(path: str, name: str, rj: ReplicatedJob, jobs: Sequence[ReplicatedJob]) -> Problem:
    if name == rj.name:
        return Problem(path, f"{name} would wait for itself forever", "remove it")
    if any(name == other.name for other in jobs):
        text = f"{name} comes later in the list, and must come before"
        return Problem(path, text, f"move it before {rj.name}")
    known = [other.name for other in jobs if other is not rj]
    return Problem(path, f"replicated Job {short(name)} not found", suggestion(name, known))


def _success(jobset: JobSet) -> Iterator[Problem]:
    """JobSet: over replicated Jobs without replicas, the first success of any fulfils All, and
    nothing fulfils Any."""
    policy = jobset.spec.success_policy
    if policy is None or policy.operator != "Any":
        return
    replicas = {rj.name: rj.replicas for rj in jobset.spec.replicated_jobs}
    targets = policy.target_replicated_jobs
    if targets and not any(replicas.get(name, 1) for name in targets):
        text = "all of these have 0 replicas and can never succeed"
        yield Problem("spec.successPolicy.targetReplicatedJobs", text, "name one that runs")


def _targets(jobset: JobSet) -> Iterator[Problem]:
    """Targets of policies that do not exist."""
    spec = jobset.spec
    known = [rj.name for rj in spec.replicated_jobs]
    if spec.success_policy is not None:
        named = spec.success_policy.target_replicated_jobs
        yield from unknown("spec.successPolicy.targetReplicatedJobs", named, known)
    for number, rule in enumerate(spec.failure_policy.rules if spec.failure_policy else ()):
        path = f"spec.failurePolicy.rules[{number}].targetReplicatedJobs"
        yield from unknown(path, rule.target_replicated_jobs, known)


def unknown(path: str, targets: Sequence[str], known: Sequence[str]) -> Iterator[Problem]:
    """A problem for each target that is not a replicated Job."""
    for number, name in enumerate(targets):
        if name not in known:
            text = f"replicated Job {short(name)} not found"
            yield Problem(f"{path}[{number}]", text, suggestion(name, known))


def _in_place(jobset: JobSet) -> Iterator[Problem]:
    if not jobset.restarts_in_place:
        return
    for number, rj in enumerate(jobset.spec.replicated_jobs):
        job, path = rj.template.spec, f"{rj_path(number)}.template.spec"
        if job.backoff_limit_per_index is not None or job.success_policy is not None:
            text = "conflicts with InPlaceRestart, which restarts programs before a pod fails"
            yield Problem(path, f"backoffLimitPerIndex or successPolicy {text}", "remove one")
        needed = "InPlaceRestart requires it"
        if backoff_limit(job) != MAX_INT32:
            text = f"is {backoff_limit(job)}, which would end pods that must be kept"
            yield Problem(f"{path}.backoffLimit", text, f"{needed} to be {MAX_INT32}")
        if job.pod_replacement_policy != "Failed":
            text = f"is {job.pod_replacement_policy or 'not given'}"
            yield Problem(f"{path}.podReplacementPolicy", text, f"{needed} to be Failed")
        if job.completions is None or job.completions != job.parallelism:
            text = (
                f"is {job.completions or 'not given'}, parallelism {job.parallelism or 'not given'}"
            )
            yield Problem(
                f"{path}.completions", text, "InPlaceRestart requires both, with equal values"
            )


def _deadlines(jobset: JobSet) -> Iterator[Problem]:
    """Muster: the replicas of an array have deadlines, or the attempt has; not the array."""
    jobs = jobset.spec.replicated_jobs
    if sum(rj.replicas for rj in jobs) == 1:
        return
    for number, rj in enumerate(jobs):
        job = rj.template.spec
        if rj.replicas and job.active_deadline_seconds is not None and is_array(job):
            text = "of a Job that runs a few pods at a time is not supported beside other Jobs"
            path = f"{rj_path(number)}.template.spec.activeDeadlineSeconds"
            yield Problem(path, text, "use spec.activeDeadlineSeconds, the JobSet's own")


def _coordinator(jobset: JobSet) -> Iterator[Problem]:
    coordinator = jobset.spec.coordinator
    if coordinator is None:
        return
    path = "spec.coordinator"
    jobs = {rj.name: rj for rj in jobset.spec.replicated_jobs}
    rj = jobs.get(coordinator.replicated_job)
    if rj is None:
        text = f"replicated Job {short(coordinator.replicated_job)} not found"
        yield Problem(f"{path}.replicatedJob", text, suggestion(coordinator.replicated_job, jobs))
        return
    job = rj.template.spec
    if coordinator.job_index >= rj.replicas:
        text = f"{rj.name} has no Job {coordinator.job_index}"
        yield Problem(f"{path}.jobIndex", text, f"it has {rj.replicas}, counted from 0")
    if job.completion_mode != "Indexed":
        text = f"the pods of {rj.name} have no index"
        yield Problem(f"{path}.podIndex", text, "give it completionMode: Indexed")
    elif job.completions is None:
        text = f"{rj.name} has no completions, which JobSet requires here"
        yield Problem(f"{path}.replicatedJob", text, "give it completions: 1")
    elif coordinator.pod_index >= job.completions:
        text = f"a Job of {rj.name} has no pod {coordinator.pod_index}"
        yield Problem(f"{path}.podIndex", text, f"it has {job.completions}, counted from 0")
    endpoint = coordinator_endpoint(jobset)
    if len(endpoint) > MAX_LENGTH:
        text = f"its address {short(endpoint)} has {len(endpoint)} characters"
        hint = f"a label can have {MAX_LENGTH}: shorten the JobSet's name or its subdomain"
        yield Problem(path, text, hint)


def coordinator_endpoint(jobset: JobSet) -> str:
    """JobSet: the value of the label `coordinator`; "" without a coordinator."""
    coordinator = jobset.spec.coordinator
    if coordinator is None:
        return ""
    job = f"{jobset.name}-{coordinator.replicated_job}-{coordinator.job_index}"
    return f"{job}-{coordinator.pod_index}.{jobset.subdomain}"


def _claims(jobset: JobSet) -> Iterator[Problem]:
    policies = jobset.spec.volume_claim_policies
    mounted, volumes = _volume_names(jobset)
    seen: dict[str, str] = {}
    for number, policy in enumerate(policies):
        where = f"spec.volumeClaimPolicies[{number}].templates"
        for place, claim in enumerate(policy.templates):
            name, path = claim.metadata.name, f"{where}[{place}].metadata"
            yield from claim_name(f"{path}.name", name, jobset.name)
            if claim.metadata.namespace:
                yield Problem(
                    f"{path}.namespace", "cannot be given", "claims are in the JobSet's namespace"
                )
            if name in seen:
                text = f"{name!r} is also the name of {seen[name]}"
                yield Problem(f"{path}.name", text, "names are unique")
            elif name in volumes:
                text = f"{name!r} is also the name of {volumes[name]}"
                yield Problem(f"{path}.name", text, "rename one of them")
            elif name and name not in mounted:
                text = f"no container mounts {name!r}"
                yield Problem(f"{path}.name", text, "add a volumeMount of that name, or remove it")
            seen.setdefault(name, f"{where}[{place}]")


def _volume_names(jobset: JobSet) -> tuple[set[str], Mapping[str, str]]:
    """The names of volumes that containers mount, and the path of each pod's volume."""
    mounted: set[str] = set()
    volumes: dict[str, str] = {}
    for number, rj in enumerate(jobset.spec.replicated_jobs):
        pod = rj.template.spec.template.spec
        for container in (*pod.init_containers, *pod.containers):
            mounted |= {mount.name for mount in container.volume_mounts}
        for place, volume in enumerate(pod.volumes):
            path = f"{rj_path(number)}.template.spec.template.spec.volumes[{place}]"
            volumes.setdefault(volume.name, path)
    return mounted, volumes
