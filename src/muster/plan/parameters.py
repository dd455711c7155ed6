"""The parameters of an array's replicas: which values each has, and how its program gets them.
Pure. No array is expanded: the values of a replica are computed from its number."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from msgspec.structs import replace

from muster.plan.model import GroupPlan, Parameters
from muster.spec.arrays import Distribution, Values, names_of, parse_values, variable_of
from muster.spec.models import Array
from muster.spec.parameter_rows import lines_of, names_in, row_at
from muster.spec.placeholders import OF_PARAMETER, fill_parameters, literal, parameters_in
from muster.spec.shell import script_index

#: Digits of drawn numbers: more make tables hard to read, and change no result.
_DIGITS = 6
_ROUNDS = 4


class ParameterSets:
    """The sets of `Parameters`, each computed when it is used."""

    def __init__(self, parameters: Parameters) -> None:
        self._sample, self._seed = parameters.sample, parameters.seed
        self._grid = {name: parse_values(text) for name, text in parameters.grid.items()}
        rows = parameters.rows
        self._row_names = () if rows is None else names_in(rows)
        self._lines = [] if rows is None else lines_of(rows)
        sizes = [len(v) for v in self._grid.values() if isinstance(v, Values)]
        self._total = math.prod(sizes) * (len(self._lines) or 1)
        self._is_drawn = len(sizes) < len(self._grid)
        #: Name, values and their number, the last parameter first.
        self._varied = [
            (name, values, len(values))
            for name, values in reversed(self._grid.items())
            if isinstance(values, Values)
        ]
        #: The replica of the last call and its values: a start uses them several times.
        self._last: tuple[int, Mapping[str, str]] | None = None

    def __len__(self) -> int:
        return self._total if self._sample is None else self._sample

    def values(self, replica: int) -> Mapping[str, str]:
        """The parameters of a replica. Raises IndexError."""
        last = self._last
        if last is None or last[0] != replica:
            last = self._last = replica, self._computed(replica)
        return last[1]

    def _computed(self, replica: int) -> dict[str, str]:
        if not 0 <= replica < len(self):
            raise IndexError(replica)
        if self._is_drawn:
            return self._drawn(replica)
        if self._sample is not None:
            replica = shuffled(replica, self._total, self._seed)
        return self._combined(replica)

    def _combined(self, index: int) -> dict[str, str]:
        """A set by its index among all combinations: the last parameter varies fastest."""
        found = []
        for name, values, count in self._varied:
            index, own = divmod(index, count)
            found.append((name, values[own]))
        return {**self._row(index), **dict(reversed(found))}

    def _drawn(self, replica: int) -> dict[str, str]:
        """A set of which each parameter is drawn on its own."""
        rng = random.Random(f"{self._seed}/{replica}")
        row = self._row(_index(len(self._lines) or 1, rng))
        return row | {name: draw(values, rng) for name, values in self._grid.items()}

    def _row(self, index: int) -> dict[str, str]:
        if not self._lines:
            return {}
        return dict(zip(self._row_names, row_at(self._lines[index]), strict=True))


def parameters_of(group: str, array: Array) -> Parameters:
    """The parameters of a group's replicas."""
    return Parameters(
        group, names_of(array), array.parameters, array.rows, array.sample, array.sample_seed
    )


def draw(values: Values | Distribution, rng: random.Random) -> str:
    """A random value as text. Values in a list are equally likely."""
    if isinstance(values, Values):
        return values[_index(len(values), rng)]
    least, greatest = values.bounds
    match values.kind:
        case "choice":
            return values.choices[_index(len(values.choices), rng)]
        case "int":
            return str(int(least) + _index(int(greatest) - int(least) + 1, rng))
        case "loguniform":
            number = math.exp(_between(math.log(least), math.log(greatest), rng))
        case _:
            number = _between(least, greatest, rng)
    rounded = float(f"{number:.{_DIGITS}g}")
    return repr(min(max(rounded, least), greatest))


# Of `random.Random`, only the numbers of `random()` are the same in every version of Python.


def _index(count: int, rng: random.Random) -> int:
    """A random item of `range(count)`."""
    return min(int(rng.random() * count), count - 1)


def _between(least: float, greatest: float, rng: random.Random) -> float:
    return least + (greatest - least) * rng.random()


def shuffled(index: int, count: int, seed: int) -> int:
    """The item at an index of a random order of `range(count)`, without making the order.

    A Feistel network on the smallest even number of bits permutes more numbers than needed; one
    that is too large is permuted again. Unlike that of `random`, the order is the same in every
    version of Python.
    """
    half = max((count - 1).bit_length() + 1, 2) // 2
    mask = (1 << half) - 1
    found = index
    while True:
        left, right = found >> half, found & mask
        for number in range(_ROUNDS):
            digest = blake2b(f"{seed}/{number}/{right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
        found = left << half | right
        if found < count:
            return found


def variables(values: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a replica with these parameters: MUSTER_PARAM_LR and the
    like."""
    return {variable_of(name): value for name, value in values.items()}


def arguments(group: GroupPlan, values: Mapping[str, str]) -> list[str]:
    """The arguments that are added for a replica with these parameters: `--lr 0.1`, or in one word,
    `--lr=-0.1`, where a parser would take the value for an option.

    Empty if the group's settings have placeholders of parameters, which show where the values
    belong, or a shell runs the command, which uses variables.
    """
    if has_placeholders(group) or script_index(group.command or ()) is not None:
        return []
    made: list[str] = []
    for name, value in values.items():
        made += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]
    return made


def with_parameters(group: GroupPlan, values: Mapping[str, str]) -> GroupPlan:
    """The group's plan for a replica with these parameters: their placeholders in `command` and
    `args` are filled, and `arguments` are added to `node_args`. Those in `node_args` and `node_env`
    are left to `plan.template.Facts`."""
    command = group.command
    if command is not None:
        script = script_index(command)
        command = tuple(
            # in a script, values must not become syntax
            fill_parameters(word, _as_variable if number == script else values.__getitem__)
            for number, word in enumerate(command)
        )
    added = (literal(word) for word in arguments(group, values))
    return replace(
        group,
        command=command,
        args=tuple(fill_parameters(word, values.__getitem__) for word in group.args),
        node_args=(*group.node_args, *added),
    )


def without_parameters(group: GroupPlan) -> GroupPlan:
    """The plan of a group without an array: `$${param.lr}` is a text there, too."""
    command = group.command
    if command is not None:
        command = tuple(fill_parameters(word, _as_it_is) for word in command)
    args = tuple(fill_parameters(word, _as_it_is) for word in group.args)
    return replace(group, command=command, args=args)


def has_placeholders(group: GroupPlan) -> bool:
    """Whether the program's words or variables have a placeholder of a parameter."""
    words: tuple[Sequence[str], ...] = (group.command or (), group.args, group.node_args)
    texts = [text for each in (*words, group.node_env.values()) for text in each]
    return any(parameters_in(text) for text in texts)


def _as_it_is(name: str) -> str:
    return f"${{{OF_PARAMETER}{name}}}"


def _as_variable(name: str) -> str:
    return f"${{{variable_of(name)}}}"
