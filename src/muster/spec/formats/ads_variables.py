"""What ADS's distributed jobs tell their programs in variables, beside what every run has and what
the framework says itself (`SCHEDULER_IP`, `MASTER_ADDR`, `TF_CONFIG`, ...)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from muster.spec.formats.documents import is_placeholder

#: What names the folder that programs write to, to have it copied to a bucket; where it is unless
#: they say otherwise.
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
    """Those of every node. args, kwargs: the program's; start_args: the framework's programs'."""
    told = {
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
    return {name: text for name, text in told.items() if text is not None}


#: Variables that only ADS's own launchers or nodes go by -> what to do instead.
_ELSEWHERE = {
    "OCI__TIMEOUT": "say `ready_timeout` in a spec",
    "OCI__TIME_OUT": "say `ready_timeout` in a spec",
    "OCI__START_ARGS": "write startOptions",
    "OCI__CODE_DIR": "write codeDir",
    "OCI__MODE": "each node is given its own",
}
#: Those that are set for every run, whatever its owner says.
_OURS = ("OCI__MAIN_IP",)
#: Those that are read.
_READ = ("OCI__TTL", "OCI__LIFE_SPAN", SYNC_DIR)


def unread(given: Mapping[str, str], made: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What becomes of variables in ADS's own words that are not read here. given: by the owner;
    made: what they would be without that."""
    for name, text in given.items():
        if not name.startswith("OCI__") or name in _READ:
            continue
        if name in _OURS:
            yield name, "is not used: Muster sets it"
        elif name in made:
            if text != made[name]:
                yield name, f"is {text} for programs only: the cluster goes by the YAML's fields"
        else:
            instead = f": {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
            yield name, f"is a variable for programs, and not read by Muster{instead}"


def role_variables(group: str) -> dict[str, str]:
    """Those of the nodes of one group: `main`, `workers` or `ps`."""
    return {"OCI__MODE": {"main": "MAIN", "workers": "WORKER", "ps": "PS"}[group]}


def sync_url(workspace: str | None, prefix: str | None, work_dir: str | None) -> str:
    """Where what is written to SYNC_DIR goes. A bare bucket is in the namespace of work_dir;
    without a workspace, it goes below work_dir. Raises ValueError, for people, if that is no URL.
    """
    where = workspace or work_dir or ""
    if "://" not in where:
        protocol, _, rest = (work_dir or "").partition("://")
        namespace = rest.partition("/")[0].partition("@")[2]
        if not (workspace and protocol == "oci" and namespace):
            raise ValueError(f"WORKSPACE is no URL: {where!r}")
        where = f"oci://{where.strip('/')}@{namespace}"
    if is_placeholder(where) or is_placeholder(prefix or ""):
        raise ValueError(f"{where} was not filled in")
    parts = [where.rstrip("/"), (prefix or "").strip("/") if workspace else "", "sync"]
    return "/".join(filter(None, parts))
