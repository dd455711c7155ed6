"""`MAIN_config.json`: what the main node says of itself and of the cluster before the others come,
and what they take from it. Pure.

Values are text, as in the environment that they come from, and so that programs may export them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import fields, replace

from muster.assemble.members import MAIN_KEYS, Member, config
from muster.assemble.parameters import Parameters
from muster.spec.wording import say

#: What ADS's own nodes write there, for one framework or another, beside what we write, too.
_ADS = frozenset(
    {"OCI__MAIN_IP", "OCI__WORKER_IP", "OCI__SLOTS", "OCI__MODE", "WORKER_PORT", "tmpdir"}
    | {"SCHEDULER_PORT", "MASTER_PORT", *MAIN_KEYS.values()}
)
#: The most unknown keys that are named.
_NAMED = 8


class MainConfig(Struct, frozen=True):
    """cluster: unlike in every other cluster, also of the same job. Below it, the settings that are
    the same on every node: those of `Parameters` of these names."""

    member: Member = field(name="muster")
    cluster: str
    framework: str = field(name="CLUSTER_TYPE")
    worker_count: Annotated[int, Meta(ge=0)] = field(name="WORKER_COUNT")
    ps_count: Annotated[int, Meta(ge=0)] = field(name="PS_COUNT")
    processes: Annotated[int, Meta(ge=1)] = field(name="nprocs")
    threads: Annotated[int, Meta(ge=1)] | None = field(name="nthread", default=None)
    death_timeout: Annotated[float, Meta(gt=0)] | None = None


#: The fields that a node takes from there, and what the file calls them.
_SHARED = {
    one.name: one.encode_name
    for one in fields(MainConfig)
    if one.name not in ("member", "cluster", "framework")
}


def main_config(me: Member, parameters: Parameters, cluster: str) -> MainConfig:
    """What the main node says."""
    shared = {name: getattr(parameters, name) for name in _SHARED}
    return MainConfig(me, cluster, parameters.framework.upper(), **shared)


def main_file(said: MainConfig, scratch: str) -> dict[str, Any]:
    """The content of the file. scratch: the cluster's TMPDIR."""
    written = config(said.member, said.framework.lower(), scratch)
    return written | {"cluster": said.cluster, "CLUSTER_TYPE": said.framework} | exported(said)


def exported(said: MainConfig | Parameters) -> dict[str, str]:
    """The shared settings that have a value, by their names in the environment."""
    values = {written: getattr(said, name) for name, written in _SHARED.items()}
    return {name: f"{value:g}" for name, value in values.items() if value is not None}


def read_main(data: Any) -> MainConfig | None:
    """What the main node says; None if no node of Muster's wrote that."""
    try:
        return convert(data, MainConfig, strict=False)
    except ValidationError:
        return None


def foreign(data: Any) -> str:
    """What is wrong with a file that `read_main` cannot read, for people."""
    if not isinstance(data, dict):
        return "is no JSON object"
    needed = [one.encode_name for one in fields(MainConfig) if one.required]
    missing = [name for name in needed if name not in data]
    if not missing:
        return f"cannot be read: {_complaint(data)}"
    known = {one.encode_name for one in fields(MainConfig)} | _ADS
    ads = [name for name in data if name in _ADS]
    unknown = [say(name) for name in data if name not in known]
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    parts = [
        f"was not written by this version of `muster node`: {', '.join(missing)} missing",
        f"{', '.join(ads)} as ADS's own nodes write it" if ads else "",
        f"unknown {', '.join(unknown[:_NAMED])}{more}" if unknown else "",
    ]
    return "; ".join(filter(None, parts))


def _complaint(data: Any) -> str:
    try:
        convert(data, MainConfig, strict=False)
    except ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        return f"{place.rstrip('`')}: {text}" if place else text
    return ""


def agreed(parameters: Parameters, said: MainConfig) -> Parameters:
    """This node's parameters, with the settings of the main node where it has any."""
    theirs = {name: getattr(said, name) for name in _SHARED}
    return replace(parameters, **{name: v for name, v in theirs.items() if v is not None})


def differences(parameters: Parameters, said: MainConfig) -> Iterator[str]:
    """Settings of this node that the main node's replace, for people."""
    for name, written in _SHARED.items():
        ours, theirs = getattr(parameters, name), getattr(said, name)
        if name in parameters.given and theirs is not None and ours != theirs:
            yield f"{written} is {ours:g} here and {theirs:g} in MAIN_config.json, which counts"
