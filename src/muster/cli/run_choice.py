"""Choose the runs of a command by name or by filter, and act on each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

from muster.cli import completion_values as values
from muster.cli.terminal import echo, print_error
from muster.describe.words import plural
from muster.errors import EXIT_OK, EngineError, InvalidInput, MusterError, Problem

if TYPE_CHECKING:
    from muster.client.client import Client
    from muster.lifecycle.states import RunState
    from muster.store.records import RunSummary

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
R = TypeVar("R")
#: Runs that the question before a command names; of more, only the number is given.
_SHOWN = 20
_OPTIONS = (
    click.option("--all", "every", is_flag=True, help="All runs that this command can act on."),
    click.option(
        "--state",
        "states",
        multiple=True,
        metavar="STATE",
        shell_complete=values.states,
        help="Runs in this state.",
    ),
    click.option("--job", metavar="JOB", shell_complete=values.jobs, help="Runs of this job."),
    click.option("--tag", "tags", multiple=True, metavar="K[=V]", help="Runs with this tag."),
    click.option(
        "--older-than",
        metavar="TIME",
        help="Runs that ended (or, if in progress, started) longer ago: 7d.",
    ),
    click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation."),
)


class ChoiceFlags(Struct, frozen=True):
    """Which runs were chosen without their names."""

    every: bool
    states: tuple[str, ...]
    job: str | None
    tags: tuple[str, ...]
    older_than: str | None
    #: Do not ask before acting on the chosen runs.
    yes: bool

    @property
    def given(self) -> bool:
        """Whether there is a filter."""
        return bool(self.every or self.states or self.job or self.tags or self.older_than)


def choice_options(function: F) -> F:
    """Add options to choose runs by. `choice_flags` reads them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def choice_flags(options: Mapping[str, Any]) -> ChoiceFlags:
    """Those of `choice_options` among a command's options."""
    return ChoiceFlags(**{name: options[name] for name in ChoiceFlags.__struct_fields__})


def tag_filter(texts: Sequence[str]) -> dict[str, str | None]:
    """Tags by `K=V`; for `K` alone the value is None, which matches any. Raises InvalidInput for
    what no tag can contain."""
    from muster.spec.decode import check_storable
    from muster.spec.wording import Refused

    for text in texts:
        try:
            check_storable(text)
        except Refused as refused:
            raise InvalidInput(Problem("--tag", f"{text!r} {refused.message}")) from None
    pairs = (text.partition("=") for text in texts)
    return {key: value if equals else None for key, equals, value in pairs}


def job_filter(client: Client, text: str | None) -> str | None:
    """The name of a job, if given, which matches all its versions; else its id. Raises NotFound."""
    if text is None:
        return None
    job = client.api.job(text)
    return job.name if text == job.name else job.id


class Outcome:
    """The errors of a command that acts on several runs: one does not keep it from the others."""

    def __init__(self) -> None:
        self.exit_code = EXIT_OK

    def attempt(self, runs: Iterable[T], act: Callable[[T], R]) -> list[R]:
        """Act on each of the runs; print the error of each that fails. The other results."""
        results = []
        for run in runs:
            try:
                results.append(act(run))
            except MusterError as error:
                self.exit_code = max(self.exit_code, print_error(error))
        return results


@contextmanager
def about(name: str) -> Iterator[None]:
    """Name the run in errors that do not."""
    try:
        yield
    except InvalidInput as error:
        if name in str(error):
            raise
        raise InvalidInput(*(_about(name, problem) for problem in error.problems)) from error
    except EngineError as error:
        if name in str(error):
            raise
        raise EngineError(f"{name}: {error}") from error


def _about(name: str, problem: Problem) -> Problem:
    path = f"{name}: {problem.path}" if problem.path else name
    return problem._replace(path=path)


def choose_runs(
    client: Client,
    names: Collection[str],
    flags: ChoiceFlags,
    outcome: Outcome,
    *,
    verb: str,
    states: Collection[RunState],
) -> list[RunSummary]:
    """The runs with these names, or those that the flags choose once the user has agreed.

    Unknown names are reported to `outcome`. verb: what happens to the runs, for the question.
    states: those in which `--all`, `--job`, `--tag` and `--older-than` choose runs. Raises
    InvalidInput, and Exit if the user does not agree.
    """
    if bool(names) == flags.given:
        text = "runs are given both by name and by filter" if names else "no runs are given"
        hint = "name them, or use --all, --state, --job, --tag or --older-than"
        raise InvalidInput(Problem("", text, hint))
    if names:  # `find_run` also finds runs with corrupt records
        found = outcome.attempt(names, client.api.find_run)
        return [*{run.id: run for run in found}.values()]
    found = _filtered(client, flags, states)
    if not found:
        echo(f"no runs to {verb}", err=True)
    elif not flags.yes:
        _confirm(found, verb)
    return found


def _filtered(client: Client, flags: ChoiceFlags, states: Collection[RunState]) -> list[RunSummary]:
    from muster.client.filters import age_of, states_named

    found = client.summaries(
        states=states_named("--state", flags.states) or states,
        job=job_filter(client, flags.job),
        tags=tag_filter(flags.tags),
    )
    if flags.older_than is None:
        return found
    before = time.time() - age_of("--older-than", flags.older_than)
    return [run for run in found if (run.finished_at or run.created_at) <= before]


def _confirm(runs: list[RunSummary], verb: str) -> None:
    """List the runs and ask. Raises InvalidInput without a terminal, and Exit for a no."""
    from muster.cli.confirm import check_terminal, confirm
    from muster.cli.output import ago, state

    count = plural(len(runs), "run")
    check_terminal(f"{verb} {count}")
    width = max(len(run.name) for run in runs[:_SHOWN])
    for run in runs[:_SHOWN]:
        when = (
            f"ended {ago(run.finished_at)}" if run.finished_at else f"created {ago(run.created_at)}"
        )
        echo(f"  {run.name:<{width}}  {state(str(run.state))}, {when}", err=True)
    if len(runs) > _SHOWN:
        echo(f"  and {len(runs) - _SHOWN} more", err=True)
    confirm(f"{verb} {count}")
