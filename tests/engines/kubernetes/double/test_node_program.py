"""The node program in pods of the double: what is compiled of a run begins there."""

from __future__ import annotations

from pathlib import Path

from engines.conftest import PlanOf
from muster.engines.kubernetes.layout import layout
from muster.engines.kubernetes.manifest import manifest
from muster.engines.kubernetes.names import jobset_name, run_labels
from muster.engines.kubernetes.objects import config_map, description, secret
from muster.engines.kubernetes.pods import SERVER
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.versions import Versions
from muster.engines.node_program import node_program
from support.kube import Cluster
from support.kube.objects import has_condition, owner_reference


def test_each_pod_serves_its_slot(tmp_path: Path, plan_of: PlanOf) -> None:
    plan, profile = plan_of(nodes=2), KubernetesProfile()
    name = jobset_name(plan, 0)
    described = description(plan, profile, layout(plan, range(2)), {"run_id": plan.run_id})
    with Cluster(tmp_path) as cluster:
        for obj in manifest(plan, profile, Versions()):
            cluster.create(obj)
        owner = owner_reference(cluster.get("jobsets", name))
        for obj in (
            config_map(plan, profile, name, node_program(), described),
            secret(plan, profile, name, layout(plan, range(2)), lambda _: b"k" * 32),
        ):
            obj["metadata"]["ownerReferences"] = [owner]
            cluster.create(obj)

        def serving() -> list[str]:
            return [
                pod["metadata"]["name"]
                for pod in cluster.pods(**run_labels(plan.run_id))
                if has_condition(pod, "Ready")
                and (here := cluster.kubelet.pods.get(pod["metadata"]["uid"])) is not None
                and Path(here.paths["node"].translate(SERVER), "socket").exists()
            ]

        cluster.until(lambda: len(serving()) == 2, "both pods serve")
        lost, kept = serving()
        cluster.kubelet.run_out_of_memory(cluster.get("pods", lost))
        cluster.until(lambda: lost not in serving() and len(serving()) == 2, "it is replaced")
        assert kept in serving()
        cluster.storage.delete("jobsets", "default", name)
        cluster.until(lambda: cluster.left() == [], "nothing is left")
