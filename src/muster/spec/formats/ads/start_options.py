"""ADS: `startOptions`, options for a framework's own programs, split by program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

#: Framework -> the framework options that hold them: for the main node, for the others.
PROGRAMS = {"dask": ("scheduler_args", "worker_args"), "ray": ("head_args", "worker_args")}


class _Only(Struct, frozen=True):
    """Options that only one of a framework's two programs accepts."""

    main: frozenset[str]
    others: frozenset[str]


_ONLY = {
    "dask": _Only(
        frozenset(
            {"--port", "--idle-timeout", "--jupyter", "--no-jupyter", "--show", "--no-show"}
            | {"--use-xheaders"}
        ),
        frozenset(
            {"--worker-port", "--nanny-port", "--nworkers", "--nprocs", "--nthreads", "--name"}
            | {"--listen-address", "--contact-address", "--memory-limit", "--nanny", "--no-nanny"}
            | {"--local-directory", "--resources", "--death-timeout", "--lifetime"}
            | {"--lifetime-stagger", "--lifetime-restart", "--no-lifetime-restart"}
            | {"--worker-class", "--preload-nanny", "--scheduler-sni"}
        ),
    ),
    "ray": _Only(
        frozenset(
            {"--head", "--port", "--include-dashboard", "--dashboard-host", "--dashboard-port"}
            | {"--ray-client-server-port", "--autoscaling-config"}
        ),
        frozenset({"--address"}),
    ),
}


def split_by_program(framework: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of the main node's program and of the other nodes', from options for all."""
    only = _ONLY[framework]
    main: list[str] = []
    others: list[str] = []
    for option in _options(words):
        name = option[0].partition("=")[0]
        if name not in only.others:
            main += option
        if name not in only.main:
            others += option
    return main, others


def without_tls(words: Sequence[str]) -> list[str]:
    """The options without those of ADS's certificates: `--tls-key F`, `--tls-key=F`."""
    return [word for option in _options(words) if option[0][:6] != "--tls-" for word in option]


def has_option(words: Sequence[str], name: str) -> bool:
    """Whether the options include one of that name."""
    return any(word.partition("=")[0] == name for word in words)


def _options(words: Sequence[str]) -> Iterator[list[str]]:
    """Each option with its values."""
    option: list[str] = []
    for word in words:
        if option and word.startswith("-"):
            yield option
            option = []
        option.append(word)
    if option:
        yield option
