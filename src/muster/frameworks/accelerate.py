"""Hugging Face Accelerate: PyTorch's environment, and what `accelerate launch` would add to it.

`accelerate launch --num_machines 2` itself makes two worlds of one process each where there is no
GPU, and ends well: so does a program that does not say that it is to use CPUs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from muster.frameworks.base import Cluster, Setup
from muster.frameworks.pytorch import PyTorch, PyTorchOptions, prepared

#: Only the node knows: NVIDIA's devices, or AMD's, that the program may see.
_CPU_WITHOUT_GPU = """\
gpu=
for device in /dev/nvidia[0-9]* /dev/kfd; do test -e "$device" && gpu=yes; done
case "${CUDA_VISIBLE_DEVICES-0}" in ""|-1) gpu= ;; esac
test -n "$gpu" || export ACCELERATE_USE_CPU="${ACCELERATE_USE_CPU:-true}\""""


class AccelerateOptions(PyTorchOptions, frozen=True, kw_only=True):
    """What Accelerate can be told, besides what PyTorch can.

    mixed_precision: fp16, bf16 or fp8. Default: what the program says.
    gradient_accumulation_steps: Steps whose gradients are added up. Default: what the program says.
    cpu: Whether to use CPUs only. Default: where the node has no GPU of NVIDIA's or AMD's.
    """

    mixed_precision: Literal["fp16", "bf16", "fp8"] | None = None
    gradient_accumulation_steps: Annotated[int, Meta(ge=1)] | None = None
    cpu: bool | None = None


class Accelerate(PyTorch):
    name = "accelerate"
    summary = "Hugging Face Accelerate over all nodes, without accelerate launch"
    Options = AccelerateOptions

    def setup(self, cluster: Cluster) -> Setup:
        """PyTorch's, and Accelerate's own variables. Raises InvalidInput as PyTorch does."""
        setup = super().setup(cluster)
        options: AccelerateOptions = cluster.options
        said = {
            "ACCELERATE_MIXED_PRECISION": options.mixed_precision,
            "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": options.gradient_accumulation_steps,
            "ACCELERATE_USE_CPU": None if options.cpu is None else str(options.cpu).lower(),
        }
        env = {name: str(value) for name, value in said.items() if value is not None}
        setup = replace(setup, env={**setup.env, **env})
        return setup if options.cpu is not None else prepared(cluster, setup, _CPU_WITHOUT_GPU)
