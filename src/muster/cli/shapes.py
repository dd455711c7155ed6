"""`muster shapes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.arguments import json_option

if TYPE_CHECKING:
    from muster.spec.shapes import Shape


@click.command()
@click.argument("name", required=False)
@json_option()
def shapes(name: str | None, as_json: bool) -> None:
    """List shapes, or show the resources of one.

    A shape is a named size of a node: CPUs, memory and GPUs. Define your own in
    MUSTER_HOME/shapes.yaml; they may replace built-in ones. NAME may include a size, as in a job:
    VM.Standard.E5.Flex:4:64GiB.

    \b
    muster shapes
    muster shapes VM.Standard.E5.Flex:4:64GiB
    """
    from muster.cli.output import print_json, print_table
    from muster.cli.terminal import echo
    from muster.client.client import Client

    api = Client().api
    if name is None:
        known = api.shapes()
        if as_json:
            print_json([_data(shape) for shape in known])
            return
        header = ("SHAPE", "OCPUS", "CPUS", "MEMORY", "GPUS", "FLEXIBLE", "ORIGIN", "SOURCE")
        print_table(
            header,
            [_row(shape) for shape in known],
            drop=("SOURCE", "OCPUS", "ORIGIN"),
            shorten={"SHAPE": 16, "SOURCE": 12},
        )
        return
    shape = api.shape(name)
    if as_json:
        print_json(_data(shape))
        return
    for line in _lines(shape):
        echo(line)


def _row(shape: Shape) -> tuple[str, ...]:
    if shape.local:
        sizes = ("-",) * 4
    else:
        sizes = (f"{shape.ocpus:g}", f"{shape.cpus:g}", _memory(shape), _gpus(shape))
    return (shape.name, *sizes, "yes" if shape.flex else "no", _origin(shape), shape.source)


def _lines(shape: Shape) -> list[str]:
    if shape.local:
        return [f"{shape.name}: all resources of this machine (`muster doctor` shows them)"]
    lines = [
        f"{shape.name}: {shape.ocpus:g} OCPUs ({shape.cpus:g} CPUs), {_memory(shape)}, "
        f"GPUs: {_gpus(shape)}"
    ]
    if shape.flex:
        lines.append(f"flexible: {shape.name}:OCPUS:MEMORY chooses the size")
    where = shape.catalogue or "the built-in catalogue"
    lines.append(f"from {where}" + (", replaces a built-in shape" * shape.replaces))
    return lines + ([f"source: {shape.source}"] if shape.source else [])


def _memory(shape: Shape) -> str:
    from muster.spec.quantities import format_size

    return format_size(shape.memory)


def _gpus(shape: Shape) -> str:
    return f"{shape.gpus} {shape.gpu}".rstrip() if shape.gpus else "none"


def _origin(shape: Shape) -> str:
    if not shape.catalogue:
        return "built-in"
    return "yours, replaces a built-in one" if shape.replaces else "yours"


def _data(shape: Shape) -> dict[str, Any]:
    """A shape as JSON. memory is in bytes; all sizes of `local` are null."""
    names = ("ocpus", "cpus", "memory", "gpus")
    return {
        "name": shape.name,
        **{name: None if shape.local else getattr(shape, name) for name in names},
        "gpu": shape.gpu or None,
        "flexible": shape.flex,
        "origin": "own" if shape.catalogue else "shipped",
        "catalogue": shape.catalogue or None,
        "replaces_shipped": shape.replaces,
        "source": shape.source or None,
    }
