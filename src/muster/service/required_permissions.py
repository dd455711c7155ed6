"""Which permissions the methods of `EmbeddedAPI` need: checked, and recorded in the audit log,
before they do anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from muster.caller import EVERYTHING
from muster.errors import NotFound
from muster.iam.resources import Resource, resource_of_notification, resource_of_schedule
from muster.permissions import Decision, Permission
from muster.service import resources
from muster.service.as_owner import as_owner
from muster.service.readable import require_of

if TYPE_CHECKING:
    from muster.service.caller_checks import CallerChecks
    from muster.store.records import RunSummary

M = TypeVar("M", bound=Callable[..., Any])


def requires(
    permission: Permission, what: str, *, action: str = "", some: bool = False
) -> Callable[[M], M]:
    """Check the caller's permission before a method. what: what the method does, for the error.
    action: what it is called in the audit log, if it changes anything: its first parameter. some:
    the method leaves out the resources for which the caller lacks the permission
    (`CallerChecks._visible`): the caller needs it for any of the project."""

    def decorate(method: M) -> M:
        @wraps(method)
        def checked(self: CallerChecks, *args: Any, **named: Any) -> Any:
            def check() -> Decision | None:
                caller = self._caller
                require = caller.require_some if some else caller.require
                return require(permission, what)

            name = action or f"api.{method.__name__}"
            with self._audited(name, lambda: _first_name(args, named), check, changes=bool(action)):
                return method(self, *args, **named)

        return cast("M", checked)

    return decorate


def of_one(
    find: Callable[[CallerChecks, str], Resource],
    permission: Permission,
    what: str,
    *,
    action: str = "",
    creates: tuple[Permission, str] | None = None,
) -> Callable[[M], M]:
    """As `requires`, for a method of one resource, which its first parameter names. The method gets
    the id: by then, the name may be another's. find: raises NotFound if it is not of the caller's
    project. creates: the permission for what is created from the resource, and what that is, for
    the error."""

    def decorate(method: M) -> M:
        @wraps(method)
        def checked(self: CallerChecks, *args: Any, **named: Any) -> Any:
            first = "" if args else next(iter(named))
            text: str = named[first] if first else args[0]
            found: Resource | None = None

            def check() -> Decision | None:
                nonlocal found
                if self._caller.authority is EVERYTHING:
                    return None
                made = self._caller.require(*creates) if creates else None
                look = partial(find, self, text)
                on, decision = require_of(self._caller, permission, what, look, _itself)
                found = on
                return made or decision

            def object_of() -> str:
                with suppress(NotFound):
                    return (found or find(self, text)).name
                return text

            name = action or f"api.{method.__name__}"
            with self._audited(name, object_of, check, changes=bool(action)):
                given = text if found is None else found.id
                if first:
                    return method(self, **{**named, first: given})
                return method(self, given, *args[1:], **named)

        return cast("M", checked)

    return decorate


def of_run(
    permission: Permission,
    what: str,
    *,
    action: str = "",
    creates: tuple[Permission, str] | None = None,
    in_node: bool = False,
) -> Callable[[M], M]:
    """As `of_one`, for a method of one run. What the method does is done as the run's owner
    (`service.as_owner`). in_node: the further parameters are the rank of a node and what is done
    there, which the audit log has, too."""

    described = resources.of_run
    if permission == Permission.LOG_CONTENT_READ:
        described = resources.of_output

    def decorate(method: M) -> M:
        @wraps(method)
        def checked(self: CallerChecks, run_id: str, *args: Any, **named: Any) -> Any:
            def look() -> RunSummary:
                self.recover()
                return self._check_run(run_id)

            def check() -> Decision:
                caller = self._caller
                made = caller.require(*creates) if creates else None
                resource_of = partial(described, caller, self.store)
                run, decision = require_of(caller, permission, what, look, resource_of)
                if permission == Permission.NODE_ENTER:
                    self._check_not_the_servers(run, what)
                return made or decision

            def object_of() -> str:
                name = run_id
                with suppress(NotFound):
                    name = self._check_run(run_id).name
                return f"{name}:{args[0]} {args[1]}".rstrip() if in_node else name

            name = action or f"runs.{method.__name__}"
            with self._audited(name, object_of, check, changes=bool(action)):
                folder = self.home.run_dir(run_id)
                return as_owner(folder, partial(method, self, run_id, *args, **named))

        return cast("M", checked)

    return decorate


def _first_name(args: Sequence[Any], named: Mapping[str, Any]) -> str:
    from muster.service.audit import name_of

    return name_of(args[0] if args else next(iter(named.values()), None))


def _itself(resource: Resource) -> Resource:
    return resource


def run_of(api: CallerChecks, text: str) -> Resource:
    api.recover()
    runs = api.store.runs
    run = runs.summary(runs.find_id(api.context.project, text))
    return resources.of_run(api.context.caller, api.store, run)


def job_of(api: CallerChecks, text: str) -> Resource:
    job = api.store.jobs.find(api.context.project, text)
    return resources.of_job(api.context.caller, api.store, job)


def schedule_of(api: CallerChecks, text: str) -> Resource:
    return resource_of_schedule(api.store.schedules.find(api.context.project, text))


def notification_of(api: CallerChecks, text: str) -> Resource:
    return resource_of_notification(api.store.notifications.find(api.context.project, text))
