"""The description of the API (OpenAPI 3.1), made from the routes and the types that they use."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from muster import __version__
from muster.api.account_operations import ACCOUNT_OPERATIONS
from muster.api.accounts import AccountsAPI
from muster.api.interface import MusterAPI
from muster.api.operations import OPERATIONS, PREFIX, Operation
from muster.api.policies import PoliciesAPI
from muster.api.policy_operations import POLICY_OPERATIONS
from muster.api.problems import MEDIA_TYPE, ProblemDetails
from muster.server.answers import BYTES, EVENTS, JSON, JSON_LINES, Answer, encoded
from muster.server.call import Call
from muster.server.examples import EXAMPLES
from muster.server.operations import CONDITIONAL
from muster.server.pages import CURSORS
from muster.server.parameters import Field, Parameters

if TYPE_CHECKING:
    from muster.server.handlers import Route

_REF = "#/components/schemas/{name}"
#: What each form of an answer is sent as.
_MEDIA = {"json": JSON, "lines": JSON_LINES, "events": EVENTS, "bytes": BYTES}
#: First word of a path -> the title under which its operations are listed.
_TAGS = {
    "jobs": "Jobs",
    "specs": "Jobs",
    "code": "Code",
    "uploads": "Code",
    "schedules": "Schedules",
    "notifications": "Notifications",
    "failed-deliveries": "Notifications",
    "runs": "Runs",
    "run-records": "Runs",
    "users": "Accounts",
    "projects": "Accounts",
    "tokens": "Accounts",
    "whoami": "Accounts",
    "caller": "Accounts",
    "secrets": "Accounts",
    "audit": "Audit",
    "policies": "Policies",
    "statements": "Policies",
    "access": "Policies",
    "groups": "Policies",
    "dynamic-groups": "Policies",
    "compartments": "Policies",
}


async def openapi(call: Call) -> Answer:
    """GET /openapi.json"""
    return Answer(await call.state.in_thread(_encoded_document))


@cache
def _encoded_document() -> bytes:
    return encoded(document())


def document() -> dict[str, Any]:
    """The description as plain data."""
    from muster.server.handlers import ROUTES  # which has the handler of this module

    paths: dict[str, dict[str, Any]] = {}
    types = _Types()
    for name, operation in OPERATIONS.items():
        function = getattr(MusterAPI, name)
        _add(paths, operation, _of_operation(types, name, operation, function))
    for name, operation in ACCOUNT_OPERATIONS.items():
        function = getattr(AccountsAPI, name)
        _add(paths, operation, _of_operation(types, name, operation, function))
    for name, operation in POLICY_OPERATIONS.items():
        function = getattr(PoliciesAPI, name)
        _add(paths, operation, _of_operation(types, name, operation, function))
    for route in ROUTES:
        _add(paths, route, _of_route(types, route))
    problem = _problem(types)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Muster",
            "version": __version__,
            "summary": "Jobs and runs of a team.",
            "description": inspect.cleandoc(_ABOUT),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": PREFIX}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": types.schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "parameters": _COMMON_PARAMETERS,
            "responses": {"Problem": problem},
        },
    }


_ABOUT = """
    Every request has a token (`Authorization: Bearer muster_...`) and works in one project: that of
    the header `Muster-Project`, or the default one. Times are seconds since the epoch, durations
    are seconds, sizes are bytes. A run or job in a path is its id or its name; `last` is the newest
    run.

    Errors are problem details (RFC 9457); `problems` has each one with its place. A request that
    may be sent again after a lost answer has an `Idempotency-Key`, with which a run, a job or a
    schedule is made once; the same key with other content is a conflict. Lists have pages if
    `limit` is given: the answer's `Link` header (rel=next) leads to the next one. Streams end with
    `{"type": "End"}`, or with `{"type": "Error"}` and the problem; one without either was cut off.
"""
_COMMON_PARAMETERS = {
    "IfMatch": {
        "name": "If-Match",
        "in": "header",
        "schema": {"type": "string"},
        "description": "The ETag of the job or schedule as it was read: if it has changed, "
        "nothing is done.",
    },
    "Project": {
        "name": "Muster-Project",
        "in": "header",
        "schema": {"type": "string"},
        "description": "The project to work in. Default: that of the token, or the user's.",
    },
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "maxLength": 255},
        "description": "Requests with the same key have the effect of one.",
    },
}


class _Types:
    """The types that are used, and their schemas."""

    def __init__(self) -> None:
        self._kinds: list[Any] = []
        self._places: list[dict[str, Any]] = []

    def ref(self, kind: Any) -> dict[str, Any]:
        """The schema of a type, with references to named ones. `schemas` fills it in: how a type is
        named depends on all others, since two with one name get longer ones."""
        place: dict[str, Any] = {}
        self._kinds.append(kind)
        self._places.append(place)
        return place

    def schemas(self) -> dict[str, Any]:
        """The schemas of all named types that were used. To be called last."""
        made, named = msgspec.json.schema_components(
            self._kinds, schema_hook=_schema_hook, ref_template=_REF
        )
        refs = {_REF.format(name=name): _REF.format(name=_component(name)) for name in named}
        for place, schema in zip(self._places, made, strict=True):
            place.update(_readable(schema, refs))
        return {
            _component(name): {**_readable(schema, refs), "title": _component(name)}
            for name, schema in sorted(named.items())
        }


def _component(name: str) -> str:
    """What a type is called: `Backoff`, or `SpecBackoff` for `muster.spec.policies.Backoff`, which
    is one of several with its name."""
    package, _, own = name.rpartition(".")
    return f"{package.split('.')[1].capitalize()}{own}" if package else own


def _readable(schema: Any, refs: Mapping[str, str]) -> Any:
    """A schema that generators of clients can read. refs: what is to stand for each reference.

    Some cannot read `items: false`, which says no more than the `maxItems` beside it.
    """
    if isinstance(schema, str):
        return refs.get(schema, schema)
    if isinstance(schema, list):
        return [_readable(one, refs) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _readable(value, refs)
        for name, value in schema.items()
        if not (name == "items" and value is False)
    }


def _schema_hook(kind: type) -> dict[str, Any]:
    raise NotImplementedError(f"no schema for {kind}")


def _add(paths: dict[str, Any], route: Operation | Route, data: dict[str, Any]) -> None:
    paths.setdefault(route.path, {})[route.verb.lower()] = data


def _of_operation(types: _Types, name: str, operation: Operation, function: Any) -> dict[str, Any]:
    parameters = Parameters(operation, function)
    summary, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n")
    made = _base(name, operation.path, f"{summary} {rest}".strip())
    made["parameters"] += [
        _parameter(types, one, "path", hint, required=True) for one, hint in parameters.path.items()
    ]
    made["parameters"] += [_query_parameter(types, one) for one in parameters.query.values()]
    if parameters.body is not None:
        made["requestBody"] = _body(types, parameters.body, name)
    if name in CONDITIONAL:
        made["parameters"].append({"$ref": "#/components/parameters/IfMatch"})
    made["responses"] = _responses(types, operation, parameters.answer, name)
    if name in CURSORS:
        made["responses"]["200"]["headers"]["Link"] = {
            "schema": {"type": "string"},
            "description": "With a limit: the next page (rel=next); none after the last one.",
        }
    return made


def _of_route(types: _Types, route: Route) -> dict[str, Any]:
    name = f"{route.verb.lower()} {route.path}"
    made = _base(name, route.path, route.summary)
    made["parameters"] += [
        _parameter(types, word[1:-1], "path", str, required=True)
        for word in route.path.split("/")
        if word.startswith("{")
    ]
    made["parameters"] += [
        _parameter(types, one, "query", hint, required=False) for one, hint in route.query.items()
    ]
    if route.body == BYTES:
        content = {BYTES: {"schema": {"type": "string", "format": "binary"}}}
        made["requestBody"] = {"required": True, "content": content}
    elif route.body is not None:
        made["requestBody"] = _body(types, route.body, name)
    if route.has_key:
        made["parameters"].append({"$ref": "#/components/parameters/IdempotencyKey"})
    content = {JSON: {"schema": types.ref(route.answer), **_example(f"{name} answer")}}
    made["responses"] = {
        str(route.status): {"description": "Done.", "content": content},
        "default": {"$ref": "#/components/responses/Problem"},
    }
    return made


def _base(name: str, path: str, text: str) -> dict[str, Any]:
    summary, _, rest = " ".join(text.split()).partition(". ")
    return {
        "operationId": "".join(word.capitalize() for word in _words(name)),
        "tags": [_TAGS.get(path.split("/")[1], "Server")],
        "summary": f"{summary.rstrip('.')}.",
        **({"description": rest} if rest else {}),
        "parameters": [{"$ref": "#/components/parameters/Project"}],
    }


def _words(name: str) -> Sequence[str]:
    return "".join(letter if letter.isalnum() else " " for letter in name).split()


def _parameter(
    types: _Types, name: str, place: str, hint: Any, *, required: bool
) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": types.ref(_not_none(hint))}


def _query_parameter(types: _Types, field: Field) -> dict[str, Any]:
    required = field.required and not field.optional
    if field.mapping:
        schema = {"type": "array", "items": {"type": "string"}}
        text = "Each as KEY=VALUE, or KEY for any value."
        given = {"name": field.name, "in": "query", "required": required, "schema": schema}
        return {**given, "description": text}
    return _parameter(types, field.name, "query", field.kind, required=required)


def _not_none(hint: Any) -> Any:
    """A type without None, which is sent by leaving the parameter out."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if NoneType not in get_args(hint) or not kinds:
        return hint
    result = kinds[0]
    for kind in kinds[1:]:
        result = result | kind
    return result


def _body(types: _Types, kind: Any, name: str) -> dict[str, Any]:
    content = {JSON: {"schema": types.ref(kind), **_example(name)}}
    return {"required": True, "content": content}


def _example(name: str) -> dict[str, Any]:
    return {"example": EXAMPLES[name]} if name in EXAMPLES else {}


def _responses(types: _Types, operation: Operation, answer: Any, name: str) -> dict[str, Any]:
    media = _MEDIA[operation.form]
    if operation.form == "bytes":
        schema: dict[str, Any] = {"type": "string", "format": "binary"}
    elif operation.form == "json":
        schema = types.ref(answer)
    else:
        schema = types.ref(get_args(answer)[0] if get_origin(answer) else answer)
    content = {media: {"schema": schema, **_example(f"{name} answer")}}
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": content}}
    if operation.form == "json" and operation.verb == "GET":
        responses["200"]["headers"] = {"ETag": {"schema": {"type": "string"}}}
        responses["304"] = {"description": "As the one whose ETag was sent in If-None-Match."}
    return {**responses, "default": {"$ref": "#/components/responses/Problem"}}


def _problem(types: _Types) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": types.ref(ProblemDetails), **_example("problem")}}
    return {"description": "What is wrong, and what to do.", "content": content}
