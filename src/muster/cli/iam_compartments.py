"""`muster iam compartments`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.cli import completion_values as values
from muster.cli.account_data import account_data
from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.iam_changes import YES
from muster.cli.output import print_json
from muster.cli.terminal import echo, symbol
from muster.identity import DEFAULT_PROJECT

if TYPE_CHECKING:
    from muster.store.account_records import ProjectRecord


@click.group(cls=Group)
def compartments() -> None:
    """List and change compartments.

    They are projects, in a tree. What a statement allows in a compartment, it allows in those below
    it, too. Roles of members (`muster projects`) apply to one project alone.
    """


_NAME = click.argument("name", shell_complete=values.compartments)


@compartments.command("list")
@json_option()
def list_compartments(as_json: bool) -> None:
    """Print the tree of the compartments that you see.

    \b
    muster iam compartments list
    """
    from muster.client.connect import connect_policies

    found = connect_policies().compartments()
    if as_json:
        print_json([_data(one) for one in found])
        return
    for line in tree_lines(found):
        echo(line)


def _data(compartment: ProjectRecord) -> dict[str, Any]:
    """As JSON, with its OCID."""
    from muster.spec.ocids import compartment_ocid

    return {"id": compartment_ocid(compartment.name), **account_data(compartment)}


def tree_lines(found: Sequence[ProjectRecord]) -> list[str]:
    """The tree of compartments. Those whose parents are not among them are at its top."""
    names = {one.name for one in found}
    below: dict[str, list[ProjectRecord]] = {}
    for one in found:
        parent = one.parent or DEFAULT_PROJECT
        top = one.name == DEFAULT_PROJECT or parent not in names
        below.setdefault("" if top else parent, []).append(one)
    tee, end, bar = symbol("├─", "|-"), symbol("└─", "`-"), symbol("│", "|")

    def lines(parent: str, lead: str) -> Iterator[str]:
        children = sorted(below.get(parent, ()), key=lambda one: one.name)
        for number, one in enumerate(children, 1):
            last = number == len(children)
            about = " (the tenancy)" if one.name == DEFAULT_PROJECT else ""
            text = f"{one.name}{about}  {one.description}".rstrip()
            if not parent:
                yield text
                yield from lines(one.name, "")
            else:
                yield f"{lead}{end if last else tee} {text}"
                yield from lines(one.name, lead + ("   " if last else f"{bar}  "))

    return list(lines("", ""))


@compartments.command()
@click.argument("name")
@click.option(
    "--parent",
    metavar="COMPARTMENT",
    default=DEFAULT_PROJECT,
    show_default=True,
    shell_complete=values.compartments,
    help="The one that it is right below.",
)
@click.option("--description", default="", metavar="TEXT", help="What it is for.")
@json_option()
def create(name: str, parent: str, description: str, as_json: bool) -> None:
    """Create a compartment, which is a project.

    NAME has letters, digits and . _ -, and never changes.

    \b
    muster iam compartments create vision --parent research
    """
    from muster.client.connect import connect_policies

    made = connect_policies().create_compartment(name, parent, description)
    if as_json:
        print_json(_data(made))
        return
    echo(f"created compartment {made.name} below {made.parent or DEFAULT_PROJECT}", err=True)


@compartments.command()
@_NAME
@click.argument("parent", shell_complete=values.compartments)
@json_option()
def move(name: str, parent: str, as_json: bool) -> None:
    """Move a compartment below PARENT, with those below it.

    Statements about PARENT and those above it apply from now on.

    \b
    muster iam compartments move vision research
    """
    from muster.client.connect import connect_policies

    moved = connect_policies().move_compartment(name, parent)
    if as_json:
        print_json(_data(moved))
        return
    above = moved.parent or DEFAULT_PROJECT
    echo(f"moved compartment {moved.name} below {above}", err=True)
    echo(
        f"note: rights change: statements about {above} apply to {moved.name} from now on, those "
        "about its former parents no more, and paths in statements do not follow",
        err=True,
    )


@compartments.command()
@_NAME
@YES
def delete(name: str, yes: bool) -> None:
    """Delete a compartment without jobs, runs and compartments below it.

    Deletes its secrets and policies, and the tokens that can be used there only.

    \b
    muster iam compartments delete vision
    """
    from muster.cli.confirm import confirm
    from muster.client.connect import connect_policies

    api = connect_policies()
    if not yes:
        confirm(f"delete compartment {name} with its secrets")
    api.delete_compartment(name)
    echo(f"deleted compartment {name}", err=True)
