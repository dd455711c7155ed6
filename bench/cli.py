"""The command line itself: --help, an import, and a list of 10,000 runs."""

from __future__ import annotations

import sys
from pathlib import Path

from common import MUSTER, compare, fresh_home, timed

RUNS = 10_000
#: The id of the run with number `i`.
_ID = "printf('r%09d', i)"


def fill(home: Path, runs: int = RUNS) -> None:
    """Write finished runs directly into the store."""
    from muster.client.client import Client
    from muster.service.embedded import EmbeddedAPI
    from muster.spec.overrides import changes_from_mapping
    from muster.store.records import RunFilter

    client = Client(home)
    assert isinstance(client.api, EmbeddedAPI)
    # suspended: it is only recorded
    prepared = client.prepare(None, changes_from_mapping({"suspend": True}), command=["true"])
    first = client.start(prepared)
    with client.api.context.backend.store.database.transaction() as connection:
        connection.execute("UPDATE runs SET state = 'SUCCEEDED'")
        copied = {
            "runs": {"position": "position + i", "id": _ID, "name": "'true-' || i", "number": "i"},
            "run_specs": {"run_id": _ID},
            "plans": {"run_id": _ID},
            "events": {"run_id": _ID},
            "nodes": {"run_id": _ID},
        }
        for table, changed in copied.items():
            info = connection.execute(f"PRAGMA table_info({table})").fetchall()
            values = ", ".join(changed.get(row[1], row[1]) for row in info)
            numbers = "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            connection.execute(
                f"INSERT INTO {table} {numbers} SELECT {values} FROM {table}, n", (runs,)
            )
    assert len(client.api.runs(RunFilter())) == runs, first


if __name__ == "__main__":
    with fresh_home() as home:
        fill(home)
        compare(
            f"the command line, with {RUNS:,} runs in the store",
            {
                "floor: python -c pass": timed([sys.executable, "-c", "pass"]),
                "python -c 'import muster'": timed([sys.executable, "-c", "import muster"]),
                "muster --help": timed([MUSTER, "--help"]),
                "muster runs list": timed([MUSTER, "runs", "list"]),
                "muster runs list --limit 0": timed([MUSTER, "runs", "list", "--limit", "0"]),
                "muster runs show last": timed([MUSTER, "runs", "show", "last"]),
            },
        )
