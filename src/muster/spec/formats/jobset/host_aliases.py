"""Read the host names that pods get in addition to those of the cluster (`hostAliases`)."""

from __future__ import annotations

from muster.errors import Problem
from muster.spec.formats.jobset.model import JobSet
from muster.spec.formats.jobset.name_rules import rj_path
from muster.spec.formats.notes import Notes


def host_aliases(
    jobset: JobSet, problems: list[Problem], notes: Notes
) -> dict[str, tuple[str, ...]]:
    """Address -> names, for all nodes of the run: a note says if Kubernetes has them in some pods
    only. Adds a problem if pods have the same name for different addresses."""
    made: dict[str, list[str]] = {}
    address_of: dict[str, str] = {}
    for number, rj in enumerate(jobset.spec.replicated_jobs):
        for place, alias in enumerate(rj.template.spec.template.spec.host_aliases):
            names = made.setdefault(alias.ip, [])
            for name in alias.hostnames:
                known = address_of.setdefault(name, alias.ip)
                if known != alias.ip:
                    text = f"{name} is {known} elsewhere in this manifest"
                    path = f"{rj_path(number)}.template.spec.template.spec.hostAliases[{place}]"
                    problems.append(Problem(path, text, "nodes of a run know the same names"))
                elif name not in names:
                    names.append(name)
    given = {rj.template.spec.template.spec.host_aliases for rj in jobset.spec.replicated_jobs}
    if len(given) > 1:
        notes.add("hostAliases", "of one replicated Job are known to the nodes of all")
    return {address: tuple(names) for address, names in made.items()}
