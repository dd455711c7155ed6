"""The namespace that a job names, beside the one in which its pods are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster.engines.kubernetes.access import namespace_of
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.refusals import CannotCall
from muster.plan.model import RunPlan

#: What a converted manifest has if it names none, so that nobody has chosen it.
_UNCHOSEN = None, "default"


def namespace_notes(
    plan: RunPlan, profile: KubernetesProfile, environ: Mapping[str, str]
) -> Iterator[str]:
    """A note if the job names another namespace than that of the engine, where its pods are.
    environ: as for `access.load`."""
    if plan.namespace in _UNCHOSEN:
        return
    try:
        own = namespace_of(profile, environ)
    except CannotCall:  # there is no configuration; who uses it says so
        return
    if own != plan.namespace:
        yield (
            f"namespace {plan.namespace} is used in the names of nodes only: pods are in the "
            f"engine's, {own}. `muster engines add kubernetes --name NAME --namespace "
            f"{plan.namespace}` adds an engine for {plan.namespace}"
        )
