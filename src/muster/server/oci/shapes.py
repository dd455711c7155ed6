"""Shapes, and fast launch configurations (OCI: JobShapeSummary, FastLaunchJobConfigSummary)."""

from __future__ import annotations

from typing import Any

from muster.permissions import Permission
from muster.server.answers import Answer
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.server.oci.value_pages import value_page
from muster.spec.shapes import Shape, catalogue


def list_job_shapes(request: OciRequest) -> Answer:
    """GET /jobShapes"""
    return value_page(request, [_shown(shape) for shape in _shapes(request)])


def list_fast_launch_job_configs(request: OciRequest) -> Answer:
    """GET /fastLaunchJobConfigs"""
    # every shape starts at once here
    configs = [
        _shown(shape) | {"shapeName": shape.name, "managedEgressSupport": "SUPPORTED"}
        for shape in _shapes(request)
    ]
    return value_page(request, configs)


def _shapes(request: OciRequest) -> list[Shape]:
    """Those that can be named. Raises OciError if the caller may not see the compartment."""
    request.project_with(request.required("compartmentId"), request.permission)
    known = catalogue(request.state.backend.home.shapes).values()
    return sorted(known, key=lambda shape: shape.name)


def _shown(shape: Shape) -> dict[str, Any]:
    return {
        "name": shape.name,
        "coreCount": max(1, int(shape.ocpus)),
        "memoryInGBs": max(1, shape.memory >> 30),
        "shapeSeries": _series(shape),
    }


def _series(shape: Shape) -> str:
    if shape.gpus:
        return "NVIDIA_GPU"
    if shape.cpus == shape.ocpus:
        return "ARM"
    if shape.flex:
        return "GENERIC"
    return "AMD_ROME" if ".E" in shape.name else "INTEL_SKYLAKE"


ROUTES = (
    OciRoute(
        "list_job_shapes", "GET", "/20190101/jobShapes", list_job_shapes, Permission.JOB_INSPECT
    ),
    OciRoute(
        "list_fast_launch_job_configs",
        *("GET", "/20190101/fastLaunchJobConfigs", list_fast_launch_job_configs),
        permission=Permission.JOB_INSPECT,
    ),
)
