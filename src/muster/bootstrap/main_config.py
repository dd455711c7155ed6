"""`MAIN_config.json`: the main node's description of itself, and the settings that the other nodes
take from it. Pure.

Values are strings, as in the environment, so that programs can export them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import fields, replace

from muster.bootstrap.parameters import Parameters
from muster.bootstrap.roster import MAIN_KEYS, Member, description
from muster.describe.words import named
from muster.spec.wording import say

#: Keys that ADS's own nodes write for some framework, in addition to ours.
_ADS = frozenset(
    {"OCI__MAIN_IP", "OCI__WORKER_IP", "OCI__SLOTS", "OCI__MODE", "WORKER_PORT", "tmpdir"}
    | {"SCHEDULER_PORT", "MASTER_PORT", *MAIN_KEYS.values()}
)
#: At most this many unknown keys are named.
_MAX_NAMED = 8


class MainConfig(Struct, frozen=True):
    """The main node and the settings that are the same on every node (see `Parameters`)."""

    member: Member = field(name="muster")
    #: The id of the cluster, unique even among clusters of the same job.
    cluster: str
    framework: str = field(name="CLUSTER_TYPE")
    worker_count: Annotated[int, Meta(ge=0)] = field(name="WORKER_COUNT")
    ps_count: Annotated[int, Meta(ge=0)] = field(name="PS_COUNT")
    processes: Annotated[int, Meta(ge=1)] = field(name="nprocs")
    threads: Annotated[int, Meta(ge=1)] | None = field(name="nthread", default=None)
    death_timeout: Annotated[float, Meta(gt=0)] | None = None


#: The settings that other nodes take from the file, with their keys in it.
_SHARED = {
    one.name: one.encode_name
    for one in fields(MainConfig)
    if one.name not in ("member", "cluster", "framework")
}


def main_config(me: Member, parameters: Parameters, cluster: str) -> MainConfig:
    """The description that the main node publishes."""
    shared = {name: getattr(parameters, name) for name in _SHARED}
    return MainConfig(me, cluster, parameters.framework.upper(), **shared)


def main_file(config: MainConfig, scratch: str) -> dict[str, Any]:
    """The content of the file. scratch: the cluster's TMPDIR."""
    keys = description(config.member, config.framework.lower(), scratch)
    return keys | {"cluster": config.cluster, "CLUSTER_TYPE": config.framework} | exported(config)


def exported(settings: MainConfig | Parameters) -> dict[str, str]:
    """The shared settings that have a value, by their names in the environment."""
    values = {key: getattr(settings, name) for name, key in _SHARED.items()}
    return {key: f"{value:g}" for key, value in values.items() if value is not None}


def read_main(data: Any) -> MainConfig | None:
    """The content of the file; None if Muster did not write it."""
    try:
        return convert(data, MainConfig, strict=False)
    except ValidationError:
        return None


def unreadable_reason(data: Any) -> str:
    """A message about a file that `read_main` cannot read."""
    if not isinstance(data, dict):
        return "is not a JSON object"
    needed = [one.encode_name for one in fields(MainConfig) if one.required]
    missing = [name for name in needed if name not in data]
    if not missing:
        return f"cannot be read: {_error(data)}"
    known = {one.encode_name for one in fields(MainConfig)} | _ADS
    ads = [name for name in data if name in _ADS]
    unknown = [say(name) for name in data if name not in known]
    parts = [
        f"was not written by this version of `muster node`: {', '.join(missing)} missing",
        f"{', '.join(ads)} as ADS's own nodes write it" if ads else "",
        f"unknown {named(unknown, _MAX_NAMED)}" if unknown else "",
    ]
    return "; ".join(filter(None, parts))


def _error(data: Any) -> str:
    try:
        convert(data, MainConfig, strict=False)
    except ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        return f"{place.rstrip('`')}: {text}" if place else text
    return ""


def with_main_settings(parameters: Parameters, config: MainConfig) -> Parameters:
    """This node's parameters, with those settings that the main node has."""
    theirs = {name: getattr(config, name) for name in _SHARED}
    return replace(parameters, **{name: v for name, v in theirs.items() if v is not None})


def differences(parameters: Parameters, config: MainConfig) -> Iterator[str]:
    """A message for each setting of this node that the main node's replaces."""
    for name, key in _SHARED.items():
        ours, theirs = getattr(parameters, name), getattr(config, name)
        if name in parameters.given and theirs is not None and ours != theirs:
            yield f"{key} is {ours:g} here; using {theirs:g} from MAIN_config.json"
