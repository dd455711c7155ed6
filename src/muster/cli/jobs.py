"""`muster jobs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from muster.cli import completion_values as values
from muster.cli.arguments import Count, change_options, job_argument, json_option
from muster.cli.command_hints import Group
from muster.cli.formats import output_format
from muster.cli.job_options import (
    CommandWithProgram,
    array_options,
    command_and_changes,
    confirmed,
    job_fields,
    job_options,
    large_array_option,
)
from muster.cli.output import ago, print_cells, print_json
from muster.cli.terminal import echo, echo_notes
from muster.describe.words import plural
from muster.secrets import redacted

if TYPE_CHECKING:
    from muster.api.prepared import PreparedRun
    from muster.client.client import Client
    from muster.store.records import JobRecord


@click.group(cls=Group)
def jobs() -> None:
    """Create, list, show, edit and delete jobs."""


@jobs.command(cls=CommandWithProgram)
@click.argument("target", required=False, shell_complete=values.targets)
@job_options
@click.option("--description", metavar="TEXT", help="Description of the job.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="Tag of the job and its runs.")
@click.option("--nodes", "-n", multiple=True, metavar="N", help="Number of nodes.")
@array_options
@change_options
@large_array_option
@click.option(
    "--new", is_flag=True, help="Create a new job, even if one with the same content exists."
)
@json_option(short=False)
@click.pass_context
def create(ctx: click.Context, /, **options: Any) -> None:
    """Create a job from TARGET without starting a run.

    TARGET and the options are those of `muster run`. The job is checked as `muster run` would
    check it. If a job with the same content exists, it is returned; --new creates another one.

    \b
    muster jobs create train.py --nodes 4 --framework pytorch -- --epochs 3
    muster jobs create job.yaml --new
    muster jobs create train.py --name trial
    """
    from muster.client.client import Client
    from muster.client.job import Job
    from muster.client.target import single_targets

    client = Client()
    targets = single_targets(options["target"], options["entrypoint"])
    prepared_runs = [_prepare(client, target, ctx.meta["after"], options) for target in targets]
    created = []
    for prepared in prepared_runs:
        record = client.create(prepared)
        created.append(Job(client, record))
        echo_notes(prepared.notes)
        if not options["as_json"]:
            echo(record.id)
            how = "created" if prepared.new_job else "exists already"
            echo(f"{record.handle} {how}; `muster run {record.handle}` starts it", err=True)
    if options["as_json"]:
        print_json(
            created[0].to_dict() if len(created) == 1 else [job.to_dict() for job in created]
        )


def _prepare(
    client: Client, target: str | None, after: list[str] | None, options: dict[str, Any]
) -> PreparedRun:
    command, changes = command_and_changes(target, after, options)
    fields = job_fields(options)
    return confirmed(
        lambda large_array: client.prepare_job(
            target,
            command=command,
            new=options["new"],
            changes=changes,
            large_array=large_array,
            description=options["description"],
            **fields,
        ),
        yes=options["yes"],
    )


@jobs.command("list")
@click.option("--all", "deleted", is_flag=True, help="Include deleted jobs.")
@click.option("--tag", "tags", multiple=True, metavar="K[=V]", help="Only jobs with this tag.")
@json_option()
def list_jobs(deleted: bool, tags: tuple[str, ...], as_json: bool) -> None:
    """List jobs, newest first.

    A changed file is a new version of its job.

    \b
    muster jobs list --tag team=vision -o wide
    """
    from muster.cli.run_choice import tag_filter
    from muster.client.check import NAME
    from muster.client.client import Client
    from muster.client.job import Job

    client = Client()
    found = client.api.jobs(deleted=deleted, tags=tag_filter(tags))
    # a failed `muster check` keeps its run, and so its job; neither is the user's
    found = [job for job in found if job.name != NAME]
    if as_json:
        print_json([Job(client, record).to_dict() for record in found])
        return
    if not found:
        echo("no such jobs" if tags else "no jobs", err=True)
    wide = output_format() == "wide"
    print_cells(
        [
            "JOB",
            "ID",
            *(["NAME"] if wide or any(job.display_name for job in found) else []),
            *(["STATE"] if wide or deleted else []),
            "CREATED",
            "BY",
            "CODE",
            "DESCRIPTION",
        ],
        [
            {
                **Job(client, job)._cells(),
                "CREATED": ago(job.created_at),
                "CODE": job.artifact_name or "-",
                "DESCRIPTION": redacted(job.description).partition("\n")[0],
            }
            for job in found
        ],
        drop=("BY", "ID", "NAME"),
        shorten={"JOB": 16, "DESCRIPTION": 16, "CODE": 12},
    )


@jobs.command()
@job_argument()
@json_option()
def show(job_name: str, as_json: bool) -> None:
    """Print a job as a spec file.

    Omitted fields have their defaults. --json prints every field, in bytes and seconds.

    \b
    muster jobs show train@2 > job.yaml
    """
    from muster.client.client import Client
    from muster.client.job import Job

    client = Client()
    job = Job(client, client.api.job(job_name))
    if as_json:
        print_json(job.to_dict())
        return
    from muster.spec.formats.yaml_write import dump

    for line in _header(job.to_dict()):
        echo(f"# {line}")
    echo(dump(job.written), end="")


@jobs.command()
@job_argument()
@click.option(
    "--set",
    "sets",
    multiple=True,
    required=True,
    metavar="PATH=VALUE",
    help="New value of a setting.",
)
@json_option()
def edit(job_name: str, sets: tuple[str, ...], as_json: bool) -> None:
    """Change a job's resources, mounts, description or tags.

    The settings are resources, shape, mounts, display_name, description and tags. Existing runs
    keep theirs. To change anything else, change the file and run it, which creates a new version of
    the job.

    \b
    muster jobs edit train --set resources.memory=8GiB --set tags.team=vision
    """
    from muster.client.client import Client
    from muster.client.job import Job

    client = Client()
    job = Job(client, client.api.job(job_name)).edit(*sets)
    if as_json:
        print_json(job.to_dict())
    else:
        echo(f"{job.name}@{job.version} changed; new runs use it")


@jobs.command()
@job_argument(nargs=-1, required=True)
@click.option("--runs", is_flag=True, help="Also delete their runs and output.")
@click.option("--all-versions", is_flag=True, help="Delete every version.")
@click.option(
    "--yes",
    "-y",
    is_flag=True,
    expose_value=False,
    help="No effect: this command never asks.",
)
def delete(job_name: tuple[str, ...], runs: bool, all_versions: bool) -> None:
    """Delete jobs and their code.

    A job whose runs have not all ended is not deleted. A deleted job cannot start new runs, but its
    record (`muster jobs list --all`) and its ended runs can still be shown.

    \b
    muster jobs delete train --all-versions --runs
    """
    from muster.client.client import Client
    from muster.client.job import Job

    client = Client()
    found = [client.api.job(name) for name in job_name]
    if all_versions:
        names = {job.name for job in found}
        found += [job for job in client.api.jobs() if job.name in names]
    found = [*{job.id: job for job in found}.values()]
    client.api.check_deletable([job.id for job in found])
    for record in found:
        count = len(client.summaries(job=record.id)) if runs else 0
        job = Job(client, record).delete(runs=runs)
        with_runs = f", with {plural(count, 'run')}" if count else ""
        already = " already" if record.state == job.state and not count else ""
        newest = "" if all_versions else _newest_version(client, record)
        echo(f"{record.handle} is{already} deleted{with_runs}{newest}")


def _newest_version(client: Client, job: JobRecord) -> str:
    """The version that the job's name refers to after a deletion, or nothing if none is left."""
    newest = client.api.job(job.name)
    return f"; {job.name} is now {newest.handle}" if newest.state == "ACTIVE" else ""


@jobs.command()
@job_argument()
@click.option(
    "--after", type=Count(min=0), default=0, metavar="N", help="Only events after number N."
)
@json_option()
def events(job_name: str, after: int, as_json: bool) -> None:
    """Show a job's history: who changed what, and when.

    \b
    muster jobs events train
    """
    from muster.client.client import Client
    from muster.client.job import Job

    client = Client()
    found = Job(client, client.api.job(job_name)).events(after=after)
    if as_json:
        print_json([entry.to_dict() for entry in found])
        return
    print_cells(
        ("SEQ", "TIME", "WHAT", "BY", "DATA"),
        [entry._cells() for entry in found],
        drop=("BY",),
        shorten={"DATA": 30},
    )


def _header(job: Mapping[str, Any]) -> Iterator[str]:
    """A job's record in a few lines."""
    yield f"{job['name']}@{job['version']}, id {job['id']}"
    if job["display_name"]:
        yield job["display_name"]
    by = f" by {job['created_by']}" if job["created_by"] else ""
    yield f"{job['state']}, created {job['created_at']}{by}"
    if job["artifact"]:
        size = job["artifact_size"]
        yield f"code: {job['artifact']}{'' if size is None else f' ({size:,} bytes)'}"
