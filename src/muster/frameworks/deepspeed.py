"""DeepSpeed: PyTorch's environment, and what DeepSpeed's own launcher adds to it. There is no ssh,
and no pdsh; those who call that launcher themselves have `MUSTER_HOSTFILE`."""

from __future__ import annotations

from muster.frameworks.base import Cluster, Setup
from muster.frameworks.pytorch import PyTorch, prepared

#: From what torchrun tells each rank: with elastic training it is not known before.
_SIZES = """\
export CROSS_RANK="$GROUP_RANK" CROSS_SIZE="$GROUP_WORLD_SIZE" LOCAL_SIZE="$LOCAL_WORLD_SIZE\""""


class DeepSpeed(PyTorch):
    name = "deepspeed"
    summary = "DeepSpeed over all nodes, without ssh"

    def setup(self, cluster: Cluster) -> Setup:
        """PyTorch's, and DeepSpeed's own variables. Raises InvalidInput as PyTorch does."""
        return prepared(cluster, super().setup(cluster), _SIZES)
