"""`muster jobs`."""

from __future__ import annotations

import click

from muster.cli.arguments import job_argument, json_option
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo


@click.group()
def jobs() -> None:
    """List, show and edit jobs."""


@jobs.command("list")
@json_option()
def list_jobs(as_json: bool) -> None:
    """Jobs, newest first; a changed file is a new version of its job."""
    from muster.client.check import NAME
    from muster.client.client import Client
    from muster.client.job import Job

    client = Client()
    # of a check that found something wrong its run stays, and so does its job
    found = [job for job in client.service.jobs() if job.name != NAME]
    if as_json:
        print_json([Job(client, record).to_dict() for record in found])
        return
    if not found:
        echo("no jobs", err=True)
    print_table(
        ("JOB", "ID", "CREATED", "CODE", "DESCRIPTION"),
        [
            (
                f"{job.name}@{job.version}",
                job.id,
                ago(job.created_at),
                job.artifact_name or "-",
                job.description.partition("\n")[0],
            )
            for job in found
        ],
    )


@jobs.command()
@job_argument()
@json_option()
def show(job_name: str, as_json: bool) -> None:
    """A job's spec, as a file would say it: what is left out has its default.

    With --json, every field, in bytes and seconds.
    """
    from muster.client.client import Client
    from muster.client.job import Job

    client = Client()
    job = Job(client, client.service.job(job_name))
    if as_json:
        print_json(job.to_dict())
        return
    from muster.spec.formats.yaml_write import dump

    echo(f"# {job.name}@{job.version}, id {job.id}")
    echo(dump(job.written), end="")


@jobs.command()
@job_argument()
@click.option("--set", "sets", multiple=True, required=True, metavar="PATH=VALUE")
@json_option()
def edit(job_name: str, sets: tuple[str, ...], as_json: bool) -> None:
    """Change a job's resources, shape, mounts, description or tags.

    Runs keep what they started with. Anything else makes another job: change the file and run it.
    """
    from muster.client.client import Client
    from muster.client.job import Job

    client = Client()
    job = Job(client, client.service.job(job_name)).edit(*sets)
    if as_json:
        print_json(job.to_dict())
    else:
        echo(f"{job.name}@{job.version} changed; runs from now on use it")
