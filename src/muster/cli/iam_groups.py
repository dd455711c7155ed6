"""`muster iam groups` and `muster iam dynamic-groups`."""

from __future__ import annotations

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
from muster.cli.terminal import echo

if TYPE_CHECKING:
    pass


@click.group(cls=Group)
def groups() -> None:
    """List and change groups of users, which policies name.

    Two kinds of groups are built in: Administrators (who administer the server), and PROJECT-ROLE,
    such as vision-submitter (members of a project, see `muster projects`).
    """


_NAME = click.argument("name", shell_complete=values.user_groups)


@groups.command("list")
@json_option()
def list_groups(as_json: bool) -> None:
    """List all groups but the built-in ones.

    \b
    muster iam groups list
    """
    from muster.client.connect import connect_policies

    found = connect_policies().groups()
    if as_json:
        print_json([account_data(one) for one in found])
        return
    if not found:
        echo("no groups: `muster iam groups create` makes one", err=True)
        return
    rows = [(one.name, ago(one.created_at), one.description or "-") for one in found]
    print_table(("GROUP", "CREATED", "DESCRIPTION"), rows)


@groups.command()
@_NAME
@json_option()
def show(name: str, as_json: bool) -> None:
    """Show a group and its users.

    \b
    muster iam groups show train-users
    muster iam groups show vision-submitter
    """
    from muster.client.connect import connect_policies

    found = connect_policies().group(name)
    if as_json:
        users = [account_data(one) for one in found.users]
        print_json({**account_data(found.group), "users": users})
        return
    group = found.group
    built_in = "" if group.version else " (built in)"
    echo(f"group {group.name}{built_in}")
    if group.version and group.description:
        echo(f"  {group.description}", wrap=True)
    echo(f"  users: {', '.join(one.user for one in found.users) or 'none'}", wrap=True)


@groups.command()
@click.argument("name")
@DESCRIPTION
@json_option()
def create(name: str, description: str | None, as_json: bool) -> None:
    """Create a group of users.

    NAME has letters, digits and . _ -, and never changes.

    \b
    muster iam groups create train-users
    """
    from muster.client.connect import connect_policies

    made = connect_policies().create_group(name, description or "")
    if as_json:
        print_json(account_data(made))
        return
    echo(f"created group {made.name}", err=True)
    echo(f"next: muster iam groups add {made.name} USER", err=True)


@groups.command()
@_NAME
@YES
def delete(name: str, yes: bool) -> None:
    """Delete a group that has no users, and that no statement names.

    \b
    muster iam groups delete train-users
    """
    from muster.cli.confirm import confirm
    from muster.client.connect import connect_policies

    api = connect_policies()
    api.group(name)  # before asking: whether there is one
    if not yes:
        confirm(f"delete group {name}")
    api.delete_group(name)
    echo(f"deleted group {name}", err=True)


_USERS = click.argument("users", nargs=-1, required=True, metavar="USER...")


@groups.command()
@_NAME
@_USERS
def add(name: str, users: tuple[str, ...]) -> None:
    """Add users to a group.

    \b
    muster iam groups add train-users ana ben
    """
    from muster.client.connect import connect_policies

    api = connect_policies()
    for user in users:
        added = api.add_to_group(name, user)
        echo(f"added {user}" if added else f"{user} is in group {name} already", err=True)


@groups.command()
@_NAME
@_USERS
def remove(name: str, users: tuple[str, ...]) -> None:
    """Remove users from a group. Their runs continue.

    \b
    muster iam groups remove train-users ben
    """
    from muster.client.connect import connect_policies

    api = connect_policies()
    for user in users:
        removed = api.remove_from_group(name, user)
        echo(f"removed {user}" if removed else f"{user} is not in group {name}", err=True)


@click.group("dynamic-groups", cls=Group)
def dynamic_groups() -> None:
    """List and change dynamic groups of runs.

    Policies name them. A rule says which runs are in it:

    \b
    all {resource.type = 'datasciencejobrun', resource.compartment.id = 'OCID'}

    `muster iam suggest` prints the rule of all runs of a project.
    """


_DYNAMIC = click.argument("name", shell_complete=values.dynamic_groups)
_RULE_FILE = file_option(
    "A file with the rule; of several lines, runs match one. - is standard input."
)


@dynamic_groups.command("list")
@json_option()
def list_dynamic_groups(as_json: bool) -> None:
    """List all dynamic groups.

    \b
    muster iam dynamic-groups list
    """
    from muster.client.connect import connect_policies

    found = connect_policies().dynamic_groups()
    if as_json:
        print_json([account_data(one) for one in found])
        return
    if not found:
        echo("no dynamic groups: `muster iam dynamic-groups create` makes one", err=True)
        return
    header = ("DYNAMIC GROUP", "VERSION", "CHANGED", "RULE")
    rows = [(one.name, str(one.version), ago(one.updated_at), one.rule) for one in found]
    print_table(header, rows, drop=("CHANGED", "VERSION"))


@dynamic_groups.command("show")
@_DYNAMIC
@json_option()
def show_dynamic_group(name: str, as_json: bool) -> None:
    """Show a dynamic group, and which of the current runs are in it.

    \b
    muster iam dynamic-groups show train-runs
    """
    from msgspec import to_builtins

    from muster.client.connect import connect_policies

    found = connect_policies().dynamic_group(name)
    group = found.group
    if as_json:
        print_json({**account_data(group), "runs": to_builtins(found.runs)})
        return
    changed = f"changed {ago(group.updated_at)} by {group.updated_by}"
    echo(f"dynamic group {group.name}: version {group.version}, {changed}")
    if group.description:
        echo(f"  {group.description}", wrap=True)
    for line in group.rule.splitlines():
        echo(f"  {line}", wrap=True)
    if not found.runs:
        echo("no current run is in it", err=True)
        return
    rows = [(one.name, one.id, one.project, one.state, one.created_by) for one in found.runs]
    print_table(("RUN", "ID", "PROJECT", "STATE", "BY"), rows)


@dynamic_groups.command("create")
@click.argument("name")
@click.argument("rule", required=False)
@_RULE_FILE
@DESCRIPTION
@DRY_RUN
@SINCE
@json_option()
def create_dynamic_group(
    name: str,
    rule: str | None,
    file: str | None,
    description: str | None,
    dry_run: bool,
    since: str,
    as_json: bool,
) -> None:
    """Create dynamic group NAME of the runs that match RULE.

    \b
    muster iam dynamic-groups create jobs "resource.type = 'datasciencejobrun'"
    """
    from muster.api.policies import RuleDraft
    from muster.client.connect import connect_policies

    given = _rule(rule, file)
    if given is None:
        raise click.UsageError("Give a rule, or --file.")
    api = connect_policies()
    if dry_run:
        show_preview(api, RuleDraft(name, given), since, as_json=as_json)
        return
    made = api.create_dynamic_group(name, given, description or "")
    if as_json:
        print_json(account_data(made))
        return
    echo(f"created dynamic group {made.name}", err=True)


@dynamic_groups.command("edit")
@_DYNAMIC
@click.argument("rule", required=False)
@_RULE_FILE
@DESCRIPTION
@VERSION
@DRY_RUN
@SINCE
@json_option()
def edit_dynamic_group(
    name: str,
    rule: str | None,
    file: str | None,
    description: str | None,
    version: int | None,
    dry_run: bool,
    since: str,
    as_json: bool,
) -> None:
    """Replace the rule of a dynamic group, or its description.

    \b
    muster iam dynamic-groups edit jobs --file rule.txt --dry-run
    """
    from muster.api.policies import RuleDraft
    from muster.client.connect import connect_policies

    given = _rule(rule, file)
    if given is None and (description is None or dry_run):
        raise click.UsageError("Say what to change: a rule, --file, or --description.")
    api = connect_policies()
    if dry_run:
        show_preview(api, RuleDraft(name, given), since, as_json=as_json)
        return
    based_on = api.dynamic_group(name).group.version if version is None else version
    after = api.change_dynamic_group(name, based_on, given, description)
    if as_json:
        print_json(account_data(after))
        return
    echo(f"changed dynamic group {after.name}: version {after.version}", err=True)


def _rule(rule: str | None, file: str | None) -> str | None:
    """The rule that is given, if one is. Prints why it may match less than it seems to."""
    from pathlib import Path

    from muster.iam.policies.findings import Severity
    from muster.iam.policies.parsing import rule_findings
    from muster.spec.files import read_text

    if file is not None:
        if rule is not None:
            raise click.UsageError("Give either a rule or --file.")
        rule = read_text(Path(file)).strip()
    for one in () if rule is None else rule_findings(rule):
        if one.severity is Severity.WARNING:
            echo(str(one), err=True)
    return rule


@dynamic_groups.command("delete")
@_DYNAMIC
@YES
@DRY_RUN
@SINCE
@json_option("With --dry-run: print JSON.")
def delete_dynamic_group(name: str, yes: bool, dry_run: bool, since: str, as_json: bool) -> None:
    """Delete a dynamic group that no statement names.

    \b
    muster iam dynamic-groups delete jobs
    """
    from muster.api.policies import RuleDraft
    from muster.cli.confirm import confirm
    from muster.client.connect import connect_policies

    api = connect_policies()
    if dry_run:
        show_preview(api, RuleDraft(name, None), since, as_json=as_json)
        return
    api.dynamic_group(name)  # before asking: whether there is one
    if not yes:
        confirm(f"delete dynamic group {name}")
    api.delete_dynamic_group(name)
    echo(f"deleted dynamic group {name}", err=True)
