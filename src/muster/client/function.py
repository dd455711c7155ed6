"""Python functions as jobs: `@muster.job(nodes=4)`."""

from __future__ import annotations

import copy
import inspect
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from muster.client.api import client_of
from muster.client.client import Client, overrides_from
from muster.client.results import Left
from muster.client.run import JobRun
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState

if TYPE_CHECKING:
    from muster.drafting import Draft
    from muster.spec.override_models import RunOverrides

P = ParamSpec("P")
R = TypeVar("R")

#: What the function itself is.
_TAKEN = ("artifact", "git", "entrypoint", "notebook", "command", "args")


class FunctionRun(JobRun, Generic[R]):
    """A run of a function. Everything a `JobRun` can do, and its results."""

    def result(self, timeout: float | None = None) -> R:
        """What the function returned on rank 0, once the run has ended.

        Raises what it raised on the node that failed first, with the traceback from there in its
        notes; RunFailed if no exception is known, or the run was canceled or suspended;
        TimeoutError after `timeout` seconds (default: never).
        """
        value: R = self._left(timeout).value(0)
        return value

    def results(self, timeout: float | None = None) -> list[R]:
        """What it returned on every rank that called it and succeeded, in their order.

        One where only the main node calls it (Dask, Ray, Spark); nothing of replicas that were not
        wanted, nor of those that failed where not all had to succeed (`min_success`). Raises as
        `result` does.
        """
        return self._left(timeout).values()

    def _left(self, timeout: float | None) -> Left:
        from muster.plan.model import RunPlan

        self.wait(timeout)
        plan, folder = RunPlan.from_json(self._record.plan), self._service.home.run_dir(self.id)
        left = Left(self, plan, folder, self._service.nodes(self.id))
        if self.state != RunState.SUCCEEDED:
            left.raise_failure()
        return left


class FunctionJob(Generic[P, R]):
    """A function that can be run as a job. Called, it is the function itself, here and now."""

    def __init__(
        self,
        function: Callable[P, R],
        options: Mapping[str, Any],
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.function = function
        self._options = dict(options)
        self._changes = dict(changes or {})
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # on a node it is the plain function: nothing there has to know of Muster
        return copy.copy, (self.function,)

    def options(self, **options: Any) -> FunctionJob[P, R]:
        """The same function with other options; the ones a run can change are changes of the run,
        the others make another version of the Job."""
        from muster.spec.decode import names
        from muster.spec.override_models import RunOverrides

        known = names(RunOverrides)
        changes = {key: value for key, value in options.items() if key in known}
        others = {key: value for key, value in options.items() if key not in known}
        return FunctionJob(self.function, self._options | others, self._changes | changes)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> FunctionRun[R]:
        """Start a run in which every process calls the function; returns at once.

        Raises InvalidInput, before anything starts, for options that are wrong and for what cannot
        be sent; TypeError if the function cannot be called like that.
        """
        from muster.client.packing import pack_arguments, pack_function

        inspect.signature(self.function).bind(*args, **kwargs)
        client, overrides = client_of(self._options.get("home")), overrides_from(self._changes)
        arguments = pack_arguments(self.function, self.name, args, kwargs)
        draft = self._draft(client, pack_function(self.function, self.name), overrides)
        folder = client.service.home.run_dir(draft.plan.run_id)
        folder.path.mkdir(mode=0o700, parents=True)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(folder.arguments, flags, 0o600), "wb") as file:
                file.write(arguments)
            return FunctionRun(client.service, client.service.start(draft))
        except InvalidInput:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise

    def attach(self, run: str) -> FunctionRun[R]:
        """An earlier run of it, by name or id, for its results. Raises NotFound."""
        service = client_of(self._options.get("home")).service
        return FunctionRun(service, service.run(run))

    @property
    def name(self) -> str:
        """Of the Job: the function's, unless the options say another."""
        given = self._options.get("name") or getattr(self.function, "__name__", "function")
        return re.sub(r"[^A-Za-z0-9._-]", "", str(given)).strip("._-") or "function"

    def _draft(self, client: Client, code: bytes, overrides: RunOverrides) -> Draft:
        fields = {k: v for k, v in self._options.items() if k not in ("home", "name")}
        said = {**fields, **self._changes}
        wrong = [Problem(name, "is the function itself") for name in _TAKEN if name in said]
        if wrong:
            raise InvalidInput(*wrong)
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            path = Path(folder) / f"{self.name}.function"
            path.write_bytes(code)
            record, new = client.job(path, name=self.name, **fields)
        return client.draft(record, overrides, new_job=new)

    def __repr__(self) -> str:
        return f"<FunctionJob {self.name}>"


@overload
def job(function: Callable[P, R], /) -> FunctionJob[P, R]: ...
@overload
def job(**options: Any) -> Callable[[Callable[P, R]], FunctionJob[P, R]]: ...
def job(function: Any = None, /, **options: Any) -> Any:
    """Make a function a job: `@muster.job`, or with options, `@muster.job(nodes=4)`.

    options: fields of a spec (docs/spec.md): nodes, framework, env, resources, mounts, failure,
    requirements, max_runtime, node_groups, ...; name (default: the function's) and home.
    What comes back is called as before, here and now; `submit` runs it on nodes.
    """
    if function is not None:
        return FunctionJob(function, options)
    return lambda given: FunctionJob(given, options)
