"""What differs on the service from a run on one machine, for people. Pure."""

from __future__ import annotations

from muster.engines.oci.details import image_of, mounted_by_service
from muster.engines.oci.profile import OciProfile
from muster.engines.remote import plan_checks
from muster.plan.model import ContainerPlan, RunPlan
from muster.secrets import redacted


def notes(plan: RunPlan, profile: OciProfile) -> list[str]:
    """What to know of a plan."""
    found = []
    by_service = dict[str, str]()
    for group in plan.groups:
        if image_of(group, profile) is not None:
            found.append(
                f"group {group.name}: its image has to have Python 3.9 or newer; its ENTRYPOINT "
                "does not run"
            )
        if group.container != ContainerPlan(python=group.container.python):
            found.append(f"group {group.name}: of container, only python is used by the service")
        by_service |= mounted_by_service(group, profile)
    found += [
        f"{redacted(source)}: the service mounts it at {path}, and may write there"
        for source, path in by_service.items()
    ]
    return [*found, *plan_checks.notes(plan, by_service)]
