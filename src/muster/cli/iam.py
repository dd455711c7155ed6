"""`muster iam`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muster.cli import completion_values as values
from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.iam_compartments import compartments
from muster.cli.iam_groups import dynamic_groups, groups
from muster.cli.iam_policies import policies
from muster.cli.output import print_json
from muster.cli.terminal import echo, style
from muster.describe.words import plural
from muster.errors import EXIT_OK, EXIT_RUN_FAILED
from muster.identity import DEFAULT_PROJECT

if TYPE_CHECKING:
    from muster.api.policies import Explanation, PermissionAnswer
    from muster.client.policy_files import PolicyText


#: Statements that nearly allow something, as many as are printed; `--json` has all.
_MOST_MISSES = 5


@click.group(cls=Group)
def iam() -> None:
    """Say who may do what: policies, groups, compartments.

    A policy has statements, in the language of OCI's policies:

    \b
    Allow group vision-users to manage data-science-job-runs in compartment vision

    What no statement allows is refused. A policy is attached to a compartment, and speaks of it and
    of those below it. Compartments are projects (`muster projects`), and form a tree; the tenancy
    is the compartment `default`.
    """


iam.add_command(policies)
iam.add_command(groups)
iam.add_command(dynamic_groups)
iam.add_command(compartments)


@iam.command()
@click.argument("target", shell_complete=values.targets)
@click.option(
    "--group", metavar="NAME", help="The group of those who start runs. Default: JOB-users."
)
@click.option(
    "--dynamic-group", metavar="NAME", help="The dynamic group of the runs. Default: JOB-runs."
)
@click.option(
    "--project", metavar="PROJECT", help="Where the job runs. Default: the context's project."
)
@click.option("--rule", is_flag=True, help="Print only the matching rule of the dynamic group.")
@json_option()
def suggest(
    target: str,
    group: str | None,
    dynamic_group: str | None,
    project: str | None,
    rule: bool,
    as_json: bool,
) -> None:
    """Print the statements that a job needs.

    They are printed as the file of a policy. TARGET is what `muster run` runs, or a job of OCI as
    JSON. The statements are for those who start its runs and follow their output, and for the runs:
    their images, buckets, secrets and log groups. A comment before each says why it is needed.
    Nothing is changed.

    \b
    muster iam suggest job.yaml --project vision > train.policy
    muster iam policies create train --file train.policy
    """
    from msgspec import to_builtins

    from muster.client.suggesting import suggest_policy

    found = suggest_policy(target, group=group, dynamic_group=dynamic_group, project=project)
    if as_json:
        print_json(to_builtins(found))
    else:
        text = found.rule if rule else str(found)
        if found.project == DEFAULT_PROJECT:
            wide = "project default is the tenancy: the statements are about all compartments"
            text = text if rule else f"# {wide}.\n{text}"
            echo(f"note: {wide}; --project PROJECT names one", err=True)
        echo(text)


@iam.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=values.files)
@click.option(
    "--compartment",
    metavar="NAME",
    shell_complete=values.compartments,
    help="The compartment that the policy is for. Default: the context's project.",
)
@click.option(
    "--policy",
    metavar="NAME",
    shell_complete=values.policies,
    help="The policy that the file is for. Default: the file's name without its ending.",
)
@json_option()
@click.pass_context
def check(
    ctx: click.Context,
    files: tuple[str, ...],
    compartment: str | None,
    policy: str | None,
    as_json: bool,
) -> None:
    """Check files with statements, one a line.

    Prints what is wrong with its place, and how to write it. With a server, also finds statements
    that match nothing: groups and compartments that do not exist, conditions that no request meets.
    - is standard input. Exits with 1 if there is a finding.

    \b
    muster iam check train.policy
    """
    from pathlib import Path

    from msgspec import to_builtins

    from muster.client.policy_files import read_policy_file

    read = [
        _checked(read_policy_file(path), policy or path.stem, compartment)
        for path in map(Path, files)
    ]
    findings = [one for text in read for one in text.findings]
    if as_json:
        print_json([to_builtins(one) for one in findings])
    else:
        print_findings(read)
        statements = plural(sum(len(text.statements) for text in read), "statement")
        found = plural(len(findings), "finding") if findings else "nothing is wrong"
        echo(f"{statements} in {plural(len(files), 'file')}: {found}", err=True)
    ctx.exit(EXIT_RUN_FAILED if findings else EXIT_OK)


def _checked(text: PolicyText, name: str, compartment: str | None) -> PolicyText:
    """With what the server finds, if there is one and it may be asked."""
    from muster.client.connect import connect_policies
    from muster.client.contexts import current_address
    from muster.errors import Forbidden

    if current_address() is None:
        return text
    api = connect_policies()
    try:
        return text.checked(api, name, compartment)
    except Forbidden as error:
        echo(f"note: groups and compartments are not checked: {error}", err=True)
        return text
    finally:
        api.close()


@iam.command()
@click.option(
    "--as",
    "who",
    required=True,
    metavar="WHO",
    help="USER, group:NAME, run:RUN, run:PROJECT/RUN or any-user.",
)
@click.option("--can", required=True, metavar="VERB|PERMISSION", help="What is asked for.")
@click.option(
    "--on",
    required=True,
    metavar="RESOURCE",
    help="A type, such as data-science-jobs, or one resource: job:NAME, run:NAME, node:RUN, "
    "project:NAME, compartment:NAME, schedule:NAME, log-group:NAME, bucket:NAME, "
    "bucket:NAME/OBJECT, secret:NAME, repo:NAME. Most of them also by OCID.",
)
@click.option(
    "--in",
    "compartment",
    metavar="COMPARTMENT",
    shell_complete=values.compartments,
    help="Where. Default: the context's project.",
)
@click.option(
    "--where",
    "variables",
    multiple=True,
    metavar="VARIABLE=VALUE",
    help="A variable of the resource, such as target.bucket.name=data.",
)
@json_option()
@click.pass_context
def explain(
    ctx: click.Context,
    who: str,
    can: str,
    on: str,
    compartment: str | None,
    variables: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say whether somebody may do something, and why.

    Names the statement that says so. If it is refused, prints the statements that nearly allow it,
    with what keeps each from doing so, and a statement that would allow it. A verb asks for all
    permissions that it gives. Exits with 0 if all of it is allowed, and with 1 if not.

    \b
    muster iam explain --as ana --can manage --on data-science-job-runs --in vision
    muster iam explain --as run:train-1 --can OBJECT_READ --on bucket:data
    """
    from msgspec import to_builtins

    from muster.api.policies import Question
    from muster.cli.flags import as_flags
    from muster.client.connect import connect_policies

    where = dict(_variable(one) for one in variables)
    with as_flags("as", "can", "on", "where"):
        found = connect_policies().explain(Question(who, can, on, compartment, where))
    if as_json:
        print_json({**to_builtins(found), "allowed": found.allowed})
    else:
        _print_explanation(found)
    ctx.exit(EXIT_OK if found.allowed else EXIT_RUN_FAILED)


def _variable(text: str) -> tuple[str, str]:
    from muster.errors import InvalidInput, Problem

    name, equals, value = text.partition("=")
    if not (name and equals):
        hint = "write one such as target.bucket.name=data"
        raise InvalidInput(Problem("--where", f"{text!r} has no = after a variable", hint))
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":  # as in a statement
        value = value[1:-1]
    return name.strip(), value


def _print_explanation(found: Explanation) -> None:
    """What is allowed by one statement is in one paragraph, and so is all that is refused."""
    paragraphs: dict[object, list[PermissionAnswer]] = {}
    for one in found.answers:
        paragraphs.setdefault((one.allowed, one.statement), []).append(one)
    for number, answers in enumerate(paragraphs.values()):
        if number:
            echo()
        first = answers[0]
        word = style("allowed", "green") if first.allowed else style("refused", "red")
        names = ", ".join(one.permission for one in answers)
        echo(f"{word}: {found.who} in compartment {found.compartment}: {names}", wrap=True)
        if first.statement is not None:
            echo(f"  by {first.statement.place}: {first.statement.text}", wrap=True)
        elif first.allowed:
            echo("  by a policy that you may not read", wrap=True)
        misses = {miss.statement: miss for one in reversed(answers) for miss in one.near_misses}
        for miss in [*misses.values()][:_MOST_MISSES]:
            echo(f"  not by {miss.statement.place}: {miss.statement.text}", wrap=True)
            echo(f"    {miss.reason}", wrap=True)
        for missing in dict.fromkeys(one.missing for one in answers if one.missing):
            echo(f"  would be allowed by: {missing}", wrap=True)


def print_findings(texts: list[PolicyText], *, err: bool = False) -> None:
    """Print what is wrong with statements."""
    for text in texts:
        for one in text.findings:
            echo(str(one), err=err)
