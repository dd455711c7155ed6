"""What a person sees of an array of 100,000 replicas, all of which have run: the table, the state
of the run, its retry."""

from __future__ import annotations

import sys
from pathlib import Path

from common import MUSTER, compare, fresh_home, timed

REPLICAS = 100_000
FAILED_EVERY = 1000


def fill(home: Path, replicas: int = REPLICAS) -> str:
    """Write an array that has ended directly into the store. Its name."""
    from msgspec.structs import replace

    from muster.client.client import Client
    from muster.identity import new_owner
    from muster.plan.model import RunPlan
    from muster.service.embedded import EmbeddedAPI
    from muster.spec.overrides import changes_from_mapping
    from muster.store.records import NodeRecord, RunStep

    client = Client(home)
    assert isinstance(client.api, EmbeddedAPI)
    array = {"lr": "0.1,0.01", "seed": f"0..{replicas // 2 - 1}"}
    given = {"array": array, "parallelism": 8, "suspend": True}  # it is only recorded
    prepared = client.prepare(None, changes_from_mapping(given), command=["true"], name="sweep")
    run = client.start(prepared)
    store = client.api.store
    plan = RunPlan.from_json(client.api.run(run.id).plan)
    nodes = []
    for rank in range(replicas):
        one = plan.node(rank, rank % 8)
        failed = rank % FAILED_EVERY == 0
        state = "FAILED" if failed else "SUCCEEDED"
        record = NodeRecord(
            *(rank, one.group, one.replica, one.index, one.node_id, one.fqdn, one.address),
            *(state, int(failed), 1.0e9 + rank, 1.0e9 + rank + 2.5),
        )
        nodes.append(replace(record, metrics="" if failed else f'{{"loss": {rank % 977}}}'))
    lease = store.leases.take(run.id, new_owner(), 1.0e9)
    ended = {"state": "FAILED", "details": "too few succeeded", "finished_at": 1.1e9}
    store.runs.save(RunStep(lease, {**ended, "started_at": 1.0e9}, nodes, [], 1.1e9))
    client.close()
    return run.name


if __name__ == "__main__":
    with fresh_home() as home:
        name = fill(home)
        compare(
            f"an array of {REPLICAS:,} replicas",
            {
                "floor: python -c pass": timed([sys.executable, "-c", "pass"]),
                "muster runs table": timed([MUSTER, "runs", "table", name]),
                "muster runs show": timed([MUSTER, "runs", "show", name]),
                "muster runs show --json": timed([MUSTER, "runs", "show", name, "--json"]),
                "muster ps": timed([MUSTER, "ps"]),
                "table --state failed": timed([MUSTER, "runs", "table", name, "--state", "failed"]),
                "table --sort loss": timed([MUSTER, "runs", "table", name, "--sort", "loss"]),
                "table --csv": timed([MUSTER, "runs", "table", name, "--csv"]),
            },
            rounds=5,
        )
