"""The command line itself: --help, an import, and a list of 10,000 runs."""

from __future__ import annotations

import sys
from pathlib import Path

from common import MUSTER, compare, fresh_home, timed

RUNS = 10_000


def fill(home: Path) -> None:
    """Write 10,000 finished runs directly into the store."""
    from muster.client.client import Client
    from muster.service.start import record
    from muster.store import runs as table

    client = Client(home)
    job, _ = client.job(None, command=["true"])
    prepared = client.prepare_run(job)
    first = record(client.service.context, prepared)
    with client.service.context.backend.store.database.transaction() as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
        row = dict(connection.execute("SELECT * FROM runs").fetchone())
        values = []
        for number in range(2, RUNS + 1):
            copy = {**row, "id": f"r{number:09}", "name": f"true-{number}", "number": number}
            values.append([copy[c] for c in columns])
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO runs VALUES ({marks})", values)
        connection.execute("UPDATE runs SET state = 'SUCCEEDED'")
    assert len(table.listing(client.service.store)) == RUNS, first


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
