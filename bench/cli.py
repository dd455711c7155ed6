"""The command line itself: --help, an import, and a list of 10,000 runs."""

from __future__ import annotations

import sys
from pathlib import Path

from common import MUSTER, compare, fresh_home, timed

RUNS = 10_000


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
        info = connection.execute("PRAGMA table_info(runs)").fetchall()
        columns = [row[1] for row in info if row[1] != "position"]
        row = dict(connection.execute("SELECT * FROM runs").fetchone())
        values = []
        for number in range(2, runs + 1):
            copy = {**row, "id": f"r{number:09}", "name": f"true-{number}", "number": number}
            values.append([copy[c] for c in columns])
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO runs ({', '.join(columns)}) VALUES ({marks})", values)
        connection.execute("UPDATE runs SET state = 'SUCCEEDED'")
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
