"""Python functions as jobs: `@muster.job(nodes=4)`."""

from __future__ import annotations

import copy
import inspect
import re
import tempfile
from collections.abc import Callable, Mapping
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from muster.client.api import client_of
from muster.client.client import Client, overrides_from
from muster.client.results import Results
from muster.client.run import JobRun
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState

if TYPE_CHECKING:
    from muster.api.prepared import PreparedRun
    from muster.spec.override_models import RunOverrides

P = ParamSpec("P")
R = TypeVar("R")

#: Fields that name the code: the function is the code.
_CODE_FIELDS = ("artifact", "git", "entrypoint", "notebook", "command", "args")


class FunctionRun(JobRun, Generic[R]):
    """A run of a function: a `JobRun` with results."""

    def result(self, timeout: float | None = None, *, progress: bool = True) -> R:
        """Wait until the run has ended, and return the function's value on rank 0.

        Raises the exception of the node that failed first, with its traceback in the notes;
        RunFailed if there is no exception, or the run was canceled or suspended; TimeoutError after
        `timeout` seconds (default: never). progress: as for `wait`.
        """
        value: R = self._results(timeout, progress).value(0)
        return value

    def results(self, timeout: float | None = None, *, progress: bool = True) -> list[R]:
        """The function's values on the ranks that called it and succeeded, in rank order.

        One value where only the main node calls the function (Dask, Ray, Spark). Replicas that did
        not start, or failed within tolerance (`min_success`), have none. Raises as `result` does.
        """
        return self._results(timeout, progress).values()

    def _results(self, timeout: float | None, progress: bool) -> Results:
        from muster.plan.model import RunPlan

        self.wait(timeout, progress=progress)
        plan = RunPlan.from_json(self._record.plan)
        results = Results(self, plan, self._api, self._api.nodes(self.id))
        if self.state != RunState.SUCCEEDED:
            results.raise_failure()
        return results


class FunctionJob(Generic[P, R]):
    """A function that can run as a job. Calling it calls the function in this process."""

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
        # unpickled on a node as the plain function, which needs no Muster
        return copy.copy, (self.function,)

    def options(self, **options: Any) -> FunctionJob[P, R]:
        """The same function with other options.

        Options that a run can override are overrides; others make another version of the Job.
        """
        from muster.spec.decode import names
        from muster.spec.override_models import RunOverrides

        known = names(RunOverrides)
        changes = {key: value for key, value in options.items() if key in known}
        others = {key: value for key, value in options.items() if key not in known}
        return FunctionJob(self.function, self._options | others, self._changes | changes)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> FunctionRun[R]:
        """Start a run in which every process calls the function. Returns at once.

        Raises InvalidInput for wrong options and for arguments that cannot be sent, TypeError for
        arguments that do not match the function; nothing is started then.
        """
        from muster.client.packing import pack_arguments, pack_function

        inspect.signature(self.function).bind(*args, **kwargs)
        client, overrides = client_of(self._options.get("home")), overrides_from(self._changes)
        arguments = pack_arguments(self.function, self.name, args, kwargs)
        prepared = self._prepare(client, pack_function(self.function, self.name), overrides)
        return FunctionRun(client.api, client.api.start_function(prepared, arguments))

    def attach(self, run: str) -> FunctionRun[R]:
        """An earlier run of the function, by name or id, for its results. Raises NotFound."""
        api = client_of(self._options.get("home")).api
        return FunctionRun(api, api.run(run))

    @property
    def name(self) -> str:
        """The Job's name: that of the options, or of the function."""
        given = self._options.get("name") or getattr(self.function, "__name__", "function")
        return re.sub(r"[^A-Za-z0-9._-]", "", str(given)).strip("._-") or "function"

    def _prepare(self, client: Client, code: bytes, overrides: RunOverrides) -> PreparedRun:
        fields = {k: v for k, v in self._options.items() if k not in ("home", "name")}
        given = {**fields, **self._changes}
        wrong = [Problem(name, "is the function itself") for name in _CODE_FIELDS if name in given]
        if wrong:
            raise InvalidInput(*wrong)
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            path = Path(folder) / f"{self.name}.function"
            path.write_bytes(code)
            record, new = client.job(path, name=self.name, **fields)
        return client.prepare_run(record, overrides, new_job=new)

    def __repr__(self) -> str:
        return f"<FunctionJob {self.name}>"


@overload
def job(function: Callable[P, R], /) -> FunctionJob[P, R]: ...
@overload
def job(**options: Any) -> Callable[[Callable[P, R]], FunctionJob[P, R]]: ...
def job(function: Any = None, /, **options: Any) -> Any:
    """Make a function a job: `@muster.job`, or with options, `@muster.job(nodes=4)`.

    options: fields of a spec (docs/reference/spec.md), such as nodes, framework, env, resources,
    mounts, failure, requirements, max_runtime and node_groups; name (default: the function's) and
    home. A call of the result calls the function in this process; `submit` runs it on nodes.
    """
    if function is not None:
        return FunctionJob(function, options)
    return lambda given: FunctionJob(given, options)
