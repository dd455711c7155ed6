"""DeepSpeed: PyTorch's environment and the variables of DeepSpeed's launcher, without ssh and pdsh.
Programs that call the launcher themselves find the host file in `MUSTER_HOSTFILE`."""

from __future__ import annotations

from muster.frameworks.base import Cluster, Setup
from muster.frameworks.pytorch import PyTorch, prepared

#: Derived from torchrun's variables, since elastic training sets them only in each rank.
_SIZES = """\
export CROSS_RANK="$GROUP_RANK" CROSS_SIZE="$GROUP_WORLD_SIZE" LOCAL_SIZE="$LOCAL_WORLD_SIZE\""""


class DeepSpeed(PyTorch):
    name = "deepspeed"
    summary = "DeepSpeed over all nodes, without ssh"

    def setup(self, cluster: Cluster) -> Setup:
        """PyTorch's setup and DeepSpeed's variables. Raises InvalidInput as PyTorch does."""
        return prepared(cluster, super().setup(cluster), _SIZES)
