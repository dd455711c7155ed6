"""`muster projects`."""

from __future__ import annotations

import click

from muster.caller import Role
from muster.cli.account_data import account_data
from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo


@click.group(cls=Group)
def projects() -> None:
    """List and change projects and their members.

    Jobs, runs and secrets belong to a project. Its members see them; their roles say what else they
    may do: viewer (nothing else), submitter (start runs, change and enter their own), maintainer
    (change and delete all runs, set secrets), admin (change members and tokens).

    Without a server, commands use the project `default`. With one, `muster login --project` or
    MUSTER_PROJECT chooses; `muster context show` prints which it is.
    """


@projects.command("list")
@json_option()
def list_projects(as_json: bool) -> None:
    """List your projects; administrators see all.

    \b
    muster projects list
    """
    from muster.client.connect import connect_accounts

    found = connect_accounts().projects()
    if as_json:
        print_json([account_data(project) for project in found])
        return
    if not found:
        echo("no projects: ask who administers the server", err=True)
        return
    rows = [(one.name, ago(one.created_at), one.description or "-") for one in found]
    print_table(("PROJECT", "CREATED", "DESCRIPTION"), rows)


_DESCRIPTION = click.option("--description", default="", metavar="TEXT", help="What it is for.")


@projects.command()
@click.argument("name")
@_DESCRIPTION
def add(name: str, description: str) -> None:
    """Add a project.

    NAME has letters, digits and . _ -, and never changes.

    \b
    muster projects add vision --description "Cameras of the north plant"
    """
    from muster.client.connect import connect_accounts

    project = connect_accounts().create_project(name, description)
    echo(f"added project {project.name}", err=True)
    echo(f"next: muster projects add-member {project.name} USER --role submitter", err=True)


@projects.command()
@click.argument("name")
@click.option("--description", required=True, metavar="TEXT", help="What it is for.")
def change(name: str, description: str) -> None:
    """Describe a project.

    \b
    muster projects change vision --description "Cameras of all plants"
    """
    from muster.client.connect import connect_accounts

    project = connect_accounts().change_project(name, description)
    echo(f"changed project {project.name}", err=True)


@projects.command()
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def delete(name: str, yes: bool) -> None:
    """Delete a project that has no jobs and runs.

    Deletes its secrets, and the tokens that can be used there only.

    \b
    muster projects delete vision
    """
    from muster.cli.confirm import confirm
    from muster.client.connect import connect_accounts

    if not yes:
        confirm(f"delete project {name} with its secrets")
    connect_accounts().delete_project(name)
    echo(f"deleted project {name}", err=True)


@projects.command()
@click.argument("project")
@json_option()
def members(project: str, as_json: bool) -> None:
    """List the members of a project.

    \b
    muster projects members vision
    """
    from muster.client.connect import connect_accounts

    found = connect_accounts(project).members(project)
    if as_json:
        print_json([account_data(member) for member in found])
        return
    if not found:
        echo(f"no members: `muster projects add-member {project} USER` adds one", err=True)
        return
    rows = [(one.user, one.role, "groups" if one.from_groups else "here") for one in found]
    print_table(("USER", "ROLE", "GIVEN BY"), rows)


@projects.command("add-member")
@click.argument("project")
@click.argument("user")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.SUBMITTER.value,
    show_default=True,
    help="What the member may do.",
)
def add_member(project: str, user: str, role: str) -> None:
    """Add a member to a project, or change its role.

    \b
    muster projects add-member vision ana --role maintainer
    """
    from muster.client.connect import connect_accounts

    member = connect_accounts(project).set_member(project, user, Role(role))
    echo(f"{member.user} is {member.role} of project {member.project}", err=True)


@projects.command("remove-member")
@click.argument("project")
@click.argument("user")
def remove_member(project: str, user: str) -> None:
    """Remove a member from a project. Its runs continue.

    \b
    muster projects remove-member vision ana
    """
    from muster.client.connect import connect_accounts
    from muster.errors import NotFound

    if not connect_accounts(project).remove_member(project, user):
        raise NotFound(f"{user} is no member of project {project}")
    echo(f"removed {user} from project {project}", err=True)
