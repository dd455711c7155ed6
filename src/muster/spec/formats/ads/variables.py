"""The variables that ADS sets for the programs of distributed jobs.

Variables of every run and of the framework (`SCHEDULER_IP`, `MASTER_ADDR`, `TF_CONFIG`, ...) are
not among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

#: The variable with the folder that is copied to a bucket, and its default.
SYNC_DIR, SYNCED = "OCI__SYNC_DIR", "/opt/ml"


def cluster_variables(
    *,
    framework: str,
    workers: int,
    servers: int,
    ephemeral: bool,
    entry: str | None,
    args: Sequence[str] = (),
    kwargs: Sequence[str] = (),
    start_args: Sequence[str] = (),
    work_dir: str | None = None,
) -> dict[str, str]:
    """The variables of every node.

    args, kwargs: of the program. start_args: of the framework's own programs.
    """
    made = {
        "OCI__CLUSTER_TYPE": framework.upper(),
        "OCI__WORKER_COUNT": str(workers),
        "OCI__PS_COUNT": str(servers) if servers else None,
        "OCI__EPHEMERAL": str(ephemeral),
        "OCI__ENTRY_SCRIPT": entry,
        "OCI__ENTRY_SCRIPT_ARGS": " ".join(args) or None,
        "OCI__ENTRY_SCRIPT_KWARGS": " ".join(kwargs) or None,
        "OCI__START_ARGS": " ".join(start_args) or None,
        "OCI__WORK_DIR": work_dir,
    }
    return {name: text for name, text in made.items() if text is not None}


#: Variables that only ADS's own launchers read -> what to do instead.
_ELSEWHERE = {
    "OCI__TIMEOUT": "set `ready_timeout` in a spec",
    "OCI__TIME_OUT": "set `ready_timeout` in a spec",
    "OCI__START_ARGS": "write startOptions",
    "OCI__CODE_DIR": "write codeDir",
    "OCI__MODE": "each node has its own",
}
#: Variables that Muster sets and the user cannot.
_OURS = ("OCI__MAIN_IP",)
#: Variables that are read.
_READ = ("OCI__TTL", "OCI__LIFE_SPAN", SYNC_DIR)


def unread(given: Mapping[str, str], made: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each ADS variable of the user that Muster does not read, and a note about it.

    given: the user's variables. made: the values ADS would set.
    """
    for name, text in given.items():
        if not name.startswith("OCI__") or name in _READ:
            continue
        if name in _OURS:
            yield name, "is not used: Muster sets it"
        elif name in made:
            if text != made[name]:
                yield (
                    name,
                    f"is {text} for programs only: the YAML's fields decide about the cluster",
                )
        else:
            instead = f": {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
            yield name, f"is passed to programs, and not read by Muster{instead}"


def role_variables(group: str) -> dict[str, str]:
    """The variables of the nodes of a group: `main`, `workers` or `ps`."""
    return {"OCI__MODE": {"main": "MAIN", "workers": "WORKER", "ps": "PS"}[group]}
