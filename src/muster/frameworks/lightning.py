"""Lightning: PyTorch's environment, and how many nodes and devices there are for a Trainer or
Fabric that does not say."""

from __future__ import annotations

from muster.frameworks.base import Cluster, Setup
from muster.frameworks.pytorch import PyTorch, prepared

#: From what torchrun tells each rank: with elastic training it is not known before. The Trainer
#: takes these for what was left out; Fabric, for what was said, too.
_SIZES = """\
export PL_TRAINER_NUM_NODES="${PL_TRAINER_NUM_NODES:-$GROUP_WORLD_SIZE}"
export PL_TRAINER_DEVICES="${PL_TRAINER_DEVICES:-$LOCAL_WORLD_SIZE}"
export LT_NUM_NODES="${LT_NUM_NODES:-$GROUP_WORLD_SIZE}"
export LT_DEVICES="${LT_DEVICES:-$LOCAL_WORLD_SIZE}\""""


class Lightning(PyTorch):
    name = "lightning"
    summary = "PyTorch Lightning or Fabric over all nodes"

    def setup(self, cluster: Cluster) -> Setup:
        """PyTorch's, and Lightning's own variables. Raises InvalidInput as PyTorch does."""
        return prepared(cluster, super().setup(cluster), _SIZES)
