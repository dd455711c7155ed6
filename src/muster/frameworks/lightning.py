"""Lightning: PyTorch's environment, and default numbers of nodes and devices for Trainer and
Fabric."""

from __future__ import annotations

from muster.frameworks.base import Cluster, Setup
from muster.frameworks.pytorch import PyTorch, prepared

#: Derived from torchrun's variables, since elastic training sets them only in each rank. They are
#: defaults for Trainer; Fabric prefers them to its arguments.
_SIZES = """\
export PL_TRAINER_NUM_NODES="${PL_TRAINER_NUM_NODES:-$GROUP_WORLD_SIZE}"
export PL_TRAINER_DEVICES="${PL_TRAINER_DEVICES:-$LOCAL_WORLD_SIZE}"
export LT_NUM_NODES="${LT_NUM_NODES:-$GROUP_WORLD_SIZE}"
export LT_DEVICES="${LT_DEVICES:-$LOCAL_WORLD_SIZE}\""""


class Lightning(PyTorch):
    name = "lightning"
    summary = "PyTorch Lightning or Fabric over all nodes"

    def setup(self, cluster: Cluster) -> Setup:
        """PyTorch's setup and Lightning's variables. Raises InvalidInput as PyTorch does."""
        return prepared(cluster, super().setup(cluster), _SIZES)
