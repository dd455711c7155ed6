"""What can be typed at a place of a command line: runs, jobs, frameworks, files, ..."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from muster.errors import NotFound
from muster.secrets import redacted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from muster.client.client import Client

#: The values that continue the text typed so far. In the order of click's `shell_complete`.
Values = Callable[[click.Context, click.Parameter, str], list["CompletionItem"]]
#: Runs to offer: the newest.
_MAX_RUNS = 50


def files(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Files; the shell finds them, and quotes their names as it does for other commands."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file")]


def targets(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Jobs and files."""
    return [*jobs(ctx, param, typed), *files(ctx, param, typed)]


def runs(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """The newest runs with their states, without those given already."""
    import time

    from muster.describe.times import span

    found = _client().summaries(limit=_MAX_RUNS)
    given = ctx.params.get(param.name or "") or ()
    now = time.time()
    names = [(run.name, f"{run.state}, {span(now - run.created_at)} ago") for run in found]
    last = [("last", f"the newest run, {found[0].name}")] if found else []
    return _matching([pair for pair in [*names, *last] if pair[0] not in given], typed)


def jobs(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Jobs by name."""
    newest = {job.name: job for job in reversed(_client().api.jobs())}
    about = (
        (name, redacted(job.description).partition("\n")[0] or "job")
        for name, job in newest.items()
    )
    return _matching(sorted(about), typed)


def schedules(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Schedules by name."""
    from muster.describe.schedules import timing_text

    found = _client().api.schedules()
    return _matching([(one.name, timing_text(one.timing)) for one in found], typed)


def notifications(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Notifications by name."""
    found = _client().api.notifications()
    return _matching([(one.name, one.target) for one in found], typed)


def policies(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Policies by name, with their compartments."""
    from muster.client.connect import connect_policies

    return _matching([(one.name, one.compartment) for one in connect_policies().policies()], typed)


def user_groups(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Groups of users by name."""
    from muster.client.connect import connect_policies

    return _matching([(one.name, one.description) for one in connect_policies().groups()], typed)


def dynamic_groups(
    _ctx: click.Context, _param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Dynamic groups by name."""
    from muster.client.connect import connect_policies

    found = connect_policies().dynamic_groups()
    return _matching([(one.name, one.description) for one in found], typed)


def compartments(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Compartments by name."""
    from muster.client.connect import connect_policies

    found = connect_policies().compartments()
    return _matching([(one.name, one.description) for one in found], typed)


def event_types(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Types of events, the last of those separated by commas."""
    from muster.store.outbox_records import EVENT_TYPES

    before, comma, _ = typed.rpartition(",")
    return _matching([(f"{before}{comma}{one}", "") for one in EVENT_TYPES], typed)


def clusters(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Persistent clusters that are up."""
    from muster.client.cluster import clusters as found

    return _matching(
        [(one.name, f"{one.framework}, {one.state}") for one in found(_client())], typed
    )


def states(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """States of runs, in upper or lower case as typed so far."""
    from muster.lifecycle.states import TERMINAL, RunState

    active = [state for state in RunState if state not in TERMINAL]
    found = [*active, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED]
    lower = typed.islower() or not typed
    names = ["running" if lower else "RUNNING", *(s.lower() if lower else str(s) for s in found)]
    return _matching([(name, "") for name in names if name.upper() != "NEEDS_ATTENTION"], typed)


def replica_states(
    _ctx: click.Context, _param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """States of replicas, in upper or lower case as typed so far."""
    from muster.describe.replicas import STATES

    lower = typed.islower() or not typed
    return _matching([(state.lower() if lower else state, "") for state in STATES], typed)


def frameworks(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Frameworks, with what they are."""
    from muster.frameworks.registry import framework_names

    return _matching([(name, "") for name in framework_names()], typed)


def engines(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Engines."""
    return _matching([(one.name, "") for one in _client().api.engines()], typed)


def networks(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Values of `--network`."""
    return _matching([(name, "") for name in ("shared", "cluster", "isolated")], typed)


def settings(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Settings for `--set`, up to the =."""
    from muster.spec.decode import names
    from muster.spec.models import Resources
    from muster.spec.override_models import RunOverrides

    of_resources = (f"resources.{name}" for name in names(Resources))
    return _matching([(f"{n}=", "") for n in sorted((*names(RunOverrides), *of_resources))], typed)


def groups(ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """The groups of the run that is named before, with their sizes."""
    sizes = _group_sizes(ctx)
    return _matching([(name, f"{size} nodes") for name, size in sizes.items()], typed)


def ranks(ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """The ranks of the run that is named before; after a comma or a dash too."""
    lead = typed.rstrip("0123456789")
    found = (name for name, size in _group_sizes(ctx).items() for _ in range(size))
    return _matching([(f"{lead}{rank}", group) for rank, group in enumerate(found)], typed)


def _group_sizes(ctx: click.Context) -> dict[str, int]:
    """Of the first run that is named in the command."""
    client = _client()
    for word in ctx.find_root().obj or ():
        with suppress(NotFound):
            return client.run(word).group_sizes()
    return {}


def _client() -> Client:
    from muster.client.client import Client

    return Client()


def _matching(values: Iterable[tuple[str, str]], typed: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(v, help=about or None) for v, about in values if v.startswith(typed)]
