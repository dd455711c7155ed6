"""Hugging Face Accelerate: PyTorch's environment and the variables of `accelerate launch`.

Without GPUs, `accelerate launch --num_machines 2` makes two worlds of one process each and
succeeds; so does a program that does not request CPUs. The variables therefore request them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from muster.frameworks.base import Cluster, Setup
from muster.frameworks.pytorch import PyTorch, PyTorchOptions, prepared

#: Checks on the node for visible devices of NVIDIA or AMD.
_CPU_WITHOUT_GPU = """\
gpu=
for device in /dev/nvidia[0-9]* /dev/kfd; do test -e "$device" && gpu=yes; done
case "${CUDA_VISIBLE_DEVICES-0}" in ""|-1) gpu= ;; esac
test -n "$gpu" || export ACCELERATE_USE_CPU="${ACCELERATE_USE_CPU:-true}\""""


class AccelerateOptions(PyTorchOptions, frozen=True, kw_only=True):
    """Options of Accelerate, in addition to PyTorch's."""

    mixed_precision: Literal["fp16", "bf16", "fp8"] | None = None
    """fp16, bf16 or fp8. Default: the program's choice."""
    gradient_accumulation_steps: Annotated[int, Meta(ge=1)] | None = None
    """Steps whose gradients are accumulated. Default: the program's choice."""
    cpu: bool | None = None
    """Use only CPUs. Default: if the node has no GPU of NVIDIA or AMD."""


class Accelerate(PyTorch):
    name = "accelerate"
    summary = "Hugging Face Accelerate over all nodes, without accelerate launch"
    Options = AccelerateOptions

    def setup(self, cluster: Cluster) -> Setup:
        """PyTorch's setup and Accelerate's variables. Raises InvalidInput as PyTorch does."""
        setup = super().setup(cluster)
        options: AccelerateOptions = cluster.options
        values = {
            "ACCELERATE_MIXED_PRECISION": options.mixed_precision,
            "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": options.gradient_accumulation_steps,
            "ACCELERATE_USE_CPU": None if options.cpu is None else str(options.cpu).lower(),
        }
        env = {name: str(value) for name, value in values.items() if value is not None}
        setup = replace(setup, env={**setup.env, **env})
        return setup if options.cpu is not None else prepared(cluster, setup, _CPU_WITHOUT_GPU)
