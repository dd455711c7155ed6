"""DeepSpeed: PyTorch's environment, what DeepSpeed's own launcher adds to it, and a host file for
those who call that launcher themselves. There is no ssh, and no pdsh."""

from __future__ import annotations

from msgspec.structs import replace

from muster.frameworks.base import Cluster, Setup
from muster.frameworks.pytorch import PyTorch, prepared

#: Renamed when it is whole: each process of a node writes it.
_HOST_FILE = """\
printf '%s\\n' "$DEEPSPEED_HOSTS" | tr , '\\n' > "$DEEPSPEED_HOSTFILE.$$" &&
mv "$DEEPSPEED_HOSTFILE.$$" "$DEEPSPEED_HOSTFILE" || exit 1
export CROSS_RANK="$GROUP_RANK" CROSS_SIZE="$GROUP_WORLD_SIZE" LOCAL_SIZE="$LOCAL_WORLD_SIZE\""""


class DeepSpeed(PyTorch):
    name = "deepspeed"
    summary = "DeepSpeed over all nodes, without ssh"

    def setup(self, cluster: Cluster) -> Setup:
        """PyTorch's, and DeepSpeed's own variables. Raises InvalidInput as PyTorch does."""
        setup = super().setup(cluster)
        slots = f" slots={cluster.processes_per_node}"
        hosts = [f"${{roster.{rank}.address}}" for role in cluster.roles for rank in role.ranks]
        env = {
            "DEEPSPEED_HOSTS": ",".join(host + slots for host in hosts),
            "DEEPSPEED_HOSTFILE": "${folder}/hostfile",
        }
        return prepared(cluster, replace(setup, env={**setup.env, **env}), _HOST_FILE)
