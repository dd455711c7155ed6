"""`muster iam policies`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from muster.cli import completion_values as values
from muster.cli.account_data import account_data
from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.iam_changes import (
    DESCRIPTION,
    DRY_RUN,
    SINCE,
    VERSION,
    YES,
    file_option,
    show_preview,
)
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo, style
from muster.describe.words import plural

if TYPE_CHECKING:
    from muster.api.policies import PoliciesAPI
    from muster.client.policy_files import PolicyText


@click.group(cls=Group)
def policies() -> None:
    """List and change policies: who may do what.

    A policy is a list of statements that is attached to a compartment. Whoever may write policies
    in a compartment decides about all that is in it and below it.
    """


_NAME = click.argument("name", shell_complete=values.policies)
_STATEMENTS = click.argument("statements", nargs=-1, metavar="[STATEMENT]...")
_FILE = file_option("A file with the statements, one a line; - is standard input.")
_COMPARTMENT = click.option(
    "--compartment",
    metavar="NAME",
    shell_complete=values.compartments,
    help="The compartment that it is attached to.",
)


@policies.command("list")
@_COMPARTMENT
@json_option()
def list_policies(compartment: str | None, as_json: bool) -> None:
    """List the policies that you may read.

    \b
    muster iam policies list
    muster iam policies list --compartment vision
    """
    from muster.client.connect import connect_policies

    found = connect_policies().policies(compartment)
    if as_json:
        print_json([account_data(one) for one in found])
        return
    if not found:
        echo("no policies: `muster iam policies create` makes one", err=True)
        return
    header = ("POLICY", "COMPARTMENT", "STATEMENTS", "VERSION", "CHANGED", "BY", "DESCRIPTION")
    rows = [
        (
            *(one.name, one.compartment, str(len(one.statements)), str(one.version)),
            *(ago(one.updated_at), one.updated_by or "-", one.description or "-"),
        )
        for one in found
    ]
    print_table(header, rows, drop=("BY", "CHANGED", "DESCRIPTION"))


@policies.command()
@_NAME
@_COMPARTMENT
@click.option(
    "--statements", "only_statements", is_flag=True, help="Print only the statements, for a file."
)
@json_option()
def show(name: str, compartment: str | None, only_statements: bool, as_json: bool) -> None:
    """Show a policy.

    \b
    muster iam policies show train
    muster iam policies show train --statements > train.policy
    """
    from muster.client.connect import connect_policies

    found = connect_policies().policy(name, compartment)
    if as_json:
        print_json(account_data(found))
        return
    if only_statements:
        echo("\n".join(found.statements))
        return
    changed = f"changed {ago(found.updated_at)} by {found.updated_by or 'Muster'}"
    echo(f"{found.name} in compartment {found.compartment}: version {found.version}, {changed}")
    if found.description:
        echo(f"  {found.description}", wrap=True)
    width = len(str(len(found.statements)))
    for number, statement in enumerate(found.statements, 1):
        echo(f"{number:>{width}}  {statement}", wrap=True, hang=width + 2)


@policies.command()
@click.argument("name")
@_STATEMENTS
@_FILE
@click.option(
    "--compartment",
    metavar="NAME",
    shell_complete=values.compartments,
    help="The compartment to attach it to. Default: the context's project.",
)
@DESCRIPTION
@DRY_RUN
@SINCE
@json_option()
def create(
    name: str,
    statements: tuple[str, ...],
    file: str | None,
    compartment: str | None,
    description: str | None,
    dry_run: bool,
    since: str,
    as_json: bool,
) -> None:
    """Create policy NAME with statements.

    They are those of a file, or those that are given.

    If a statement is wrong, prints everything that is, and changes nothing.

    \b
    muster iam policies create train --file train.policy --dry-run
    muster iam policies create ben "Allow group ops to read all-resources in tenancy"
    """
    from muster.api.policies import PolicyDraft
    from muster.client.connect import connect_policies

    api = connect_policies()
    text = _statements(api, name, compartment, file, statements)
    if dry_run:
        show_preview(api, PolicyDraft(name, text.stored, compartment), since, as_json=as_json)
        return
    made = api.create_policy(name, text.stored, compartment, description or "")
    if as_json:
        print_json(account_data(made))
        return
    count = plural(len(made.statements), "statement")
    echo(f"created policy {made.name} in compartment {made.compartment}: {count}", err=True)


@policies.command()
@_NAME
@_STATEMENTS
@_FILE
@_COMPARTMENT
@DESCRIPTION
@VERSION
@DRY_RUN
@SINCE
@json_option()
def edit(
    name: str,
    statements: tuple[str, ...],
    file: str | None,
    compartment: str | None,
    description: str | None,
    version: int | None,
    dry_run: bool,
    since: str,
    as_json: bool,
) -> None:
    """Replace the statements of a policy, or its description.

    If a statement is wrong, prints everything that is, and changes nothing. Servers use the new
    statements at once; runs that have started continue.

    \b
    muster iam policies show train --statements > train.policy
    muster iam policies edit train --file train.policy --version 2 --dry-run
    muster iam policies edit train --file train.policy --version 2
    """
    from muster.api.policies import PolicyDraft
    from muster.client.connect import connect_policies

    if file is None and not statements and (description is None or dry_run):
        raise click.UsageError("Say what to change: --file, statements, or --description.")
    api = connect_policies()
    before = api.policy(name, compartment)
    new = None
    if file is not None or statements:
        new = _statements(api, before.name, before.compartment, file, statements).stored
    if dry_run:
        show_preview(api, PolicyDraft(before.name, new, before.compartment), since, as_json=as_json)
        return
    based_on = before.version if version is None else version
    after = api.change_policy(before.id, based_on, new, description)
    if as_json:
        print_json(account_data(after))
        return
    if after.version == before.version:
        echo(f"policy {after.name} says so already: version {after.version}", err=True)
        return
    echo(f"changed policy {after.name}: version {after.version}", err=True)


def _statements(
    api: PoliciesAPI,
    name: str,
    compartment: str | None,
    file: str | None,
    statements: Sequence[str],
) -> PolicyText:
    """The statements that are given. Prints what is wrong with them; Exit if they have errors."""
    from muster.client.policy_files import policy_of
    from muster.errors import EXIT_BAD_INPUT, Forbidden, InvalidInput, Problem

    if file is None and not statements:
        hint = "name a file: --file FILE; or give statements as arguments"
        raise InvalidInput(Problem("", "there are no statements", hint))
    text = policy_of(file, statements)
    if not text.statements:
        raise InvalidInput(Problem("", "there are no statements", "write one a line", text.source))
    with suppress(Forbidden):  # reading policies is no condition for writing one
        text = text.checked(api, name, compartment)
    for one in text.findings:
        echo(str(one), err=True)
    if text.has_errors:
        echo("nothing was changed", err=True)
        raise click.exceptions.Exit(EXIT_BAD_INPUT)
    return text


@policies.command()
@_NAME
@_COMPARTMENT
@YES
@DRY_RUN
@SINCE
@json_option("With --dry-run: print JSON.")
def delete(
    name: str, compartment: str | None, yes: bool, dry_run: bool, since: str, as_json: bool
) -> None:
    """Delete a policy.

    \b
    muster iam policies delete train --dry-run
    muster iam policies delete train
    """
    from muster.api.policies import PolicyDraft
    from muster.cli.confirm import confirm
    from muster.client.connect import connect_policies

    api = connect_policies()
    found = api.policy(name, compartment)
    if dry_run:
        draft = PolicyDraft(found.name, None, found.compartment)
        show_preview(api, draft, since, as_json=as_json)
        return
    if not yes:
        confirm(f"delete policy {found.name} of compartment {found.compartment}")
    api.delete_policy(found.id, found.version)
    echo(f"deleted policy {found.name}", err=True)


@policies.command()
@_NAME
@_COMPARTMENT
@json_option()
def history(name: str, compartment: str | None, as_json: bool) -> None:
    """Show what each change of a policy has added and removed.

    \b
    muster iam policies history train
    """
    from muster.client.connect import connect_policies
    from muster.describe.times import minute, moment

    api = connect_policies()
    found = api.policy_revisions(api.policy(name, compartment).id)
    if as_json:
        print_json([account_data(one) for one in found])
        return
    for number, one in enumerate(found):
        before = found[number + 1].statements if number + 1 < len(found) else ()
        when = minute(moment(one.changed_at))
        echo(f"version {one.version}, {when} by {one.changed_by or 'Muster'}")
        for statement in one.statements:
            if statement not in before:
                echo(style(f"  + {statement}", "green"), wrap=True, hang=4)
        for statement in before:
            if statement not in one.statements:
                echo(style(f"  - {statement}", "red"), wrap=True, hang=4)
