"""PyTorch: what torchrun gives its workers, without torchrun (two seconds faster to start).

`torch.distributed.init_process_group()` needs MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE;
LOCAL_RANK and its companions are torchrun's contract with training scripts. Gloo binds to what
the host name resolves to: on a Muster node that is the node's own address.
"""

from __future__ import annotations

from muster.frameworks.base import Cluster, Framework, Need, Setup
from muster.frameworks.ports import port_of

DEFAULT_PORT = 29500  # torchrun's


class PyTorch(Framework):
    name = "pytorch"
    summary = "torch.distributed over all nodes, as under torchrun"
    needs = (
        Need("29500", "main", "where the ranks meet"),
        Need("any", "every", "gloo or NCCL, between every two ranks"),
    )

    def setup(self, cluster: Cluster) -> Setup:
        """torchrun's environment for every process.

        Raises InvalidInput if MASTER_PORT is set to something that is no port.
        """
        return Setup(
            env={
                "MASTER_ADDR": "${roster.0.address}",
                "MASTER_PORT": "${port.master}",
                "RANK": "${process.rank}",
                "WORLD_SIZE": str(cluster.world_size),
                "LOCAL_RANK": "${process.local_rank}",
                "LOCAL_WORLD_SIZE": str(cluster.processes_per_node),
                "GROUP_RANK": "${node.rank}",
                "GROUP_WORLD_SIZE": str(cluster.size),
                "ROLE_RANK": "${process.rank}",
                "ROLE_WORLD_SIZE": str(cluster.world_size),
                "ROLE_NAME": "default",
                "TORCHELASTIC_RUN_ID": "${run.id}",
                "TORCHELASTIC_RESTART_COUNT": "${run.attempt}",
                "TORCHELASTIC_MAX_RESTARTS": "0",
            },
            # torchrun sets one thread a process where the owner says nothing: more processes
            # than cores otherwise each start a thread pool of their own
            defaults={"OMP_NUM_THREADS": "1"},
            ports=(port_of(cluster, "master", DEFAULT_PORT, "MASTER_PORT"),),
        )
