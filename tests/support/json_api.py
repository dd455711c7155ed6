"""`MusterAPI` whose arguments, answers, stream items and errors all pass through JSON, as over a
network: generic over the type hints of the interface."""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    Iterator,
)
from contextlib import aclosing, closing, contextmanager
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec

from muster.api.interface import MusterAPI
from muster.api.problems import ProblemDetails, details_of, error_of
from muster.errors import MusterError
from muster.type_info import encode_json


class Method:
    """A method of the interface with the types that it takes and returns."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self.signature = inspect.signature(function)
        self.hints = get_type_hints(function)
        self.answer = self.hints["return"]

    @property
    def parameters(self) -> dict[str, Any]:
        """Name -> type, without `self`."""
        return {name: self.hints[name] for name in list(self.signature.parameters)[1:]}

    @property
    def item(self) -> Any:
        """The type of the items of a stream; None if the method returns none."""
        streams = (Generator, AsyncGenerator)
        return get_args(self.answer)[0] if get_origin(self.answer) in streams else None


METHODS = {
    name: Method(function)
    for name, function in vars(MusterAPI).items()
    if inspect.isfunction(function) and not name.startswith("_")
}


class JsonAPI:
    """See the module. behind: the implementation."""

    def __init__(self, behind: MusterAPI) -> None:
        self.behind = behind

    @property
    def node_access(self) -> Any:
        return self.behind.node_access

    def __getattr__(self, name: str) -> Any:
        method = METHODS.get(name)
        if method is None:
            raise AttributeError(f"MusterAPI has no method {name}")
        target = getattr(self.behind, name)

        def call(*args: Any, **named: Any) -> Any:
            given = method.signature.bind(None, *args, **named).arguments
            sent = {
                name: through_json(value, method.hints[name])
                for name, value in given.items()
                if name != "self"
            }
            with sent_errors():
                answer = target(**sent)
            if method.item is None:
                return through_json(answer, method.answer)
            if isinstance(answer, AsyncGenerator):
                return _async_items(answer, method.item)
            return _items(answer, method.item)

        return call


def json_api(behind: MusterAPI) -> MusterAPI:
    """The interface to an implementation through JSON."""
    return cast(MusterAPI, JsonAPI(behind))


def through_json(value: Any, hint: Any) -> Any:
    """The value that arrives at the other end."""
    return msgspec.json.decode(encode_json(value), type=hint)


def _items(stream: Generator[Any], hint: Any) -> Iterator[Any]:
    with closing(stream), sent_errors():
        for item in stream:
            yield through_json(item, hint)


async def _async_items(stream: AsyncGenerator[Any], hint: Any) -> AsyncGenerator[Any]:
    async with aclosing(stream):
        with sent_errors():
            async for item in stream:
                yield through_json(item, hint)


@contextmanager
def sent_errors() -> Iterator[None]:
    """Send an error, and raise what arrives."""
    try:
        yield
    except (MusterError, TimeoutError) as error:
        raise error_of(through_json(details_of(error), ProblemDetails)) from None
