"""The state of one conversion, shared by the readers of both kinds of ADS's YAML."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from muster.errors import Problem
from muster.spec.formats.ads.shell import words_of
from muster.spec.formats.notes import Notes
from muster.spec.problem_places import Origin


class Conversion(Struct):
    """What a reader collects in addition to the spec."""

    #: The folder of the YAML file. Relative paths start here.
    folder: Path
    notes: Notes = field(default_factory=Notes)
    #: What cannot be converted.
    problems: list[Problem] = field(default_factory=list)
    #: Path of a field in the spec -> its place in the YAML.
    origins: dict[str, Origin] = field(default_factory=dict)

    def refuse(self, path: str, message: str, hint: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(path, message, hint))

    def words(self, path: str, text: str) -> list[str]:
        """`text` split as a shell does; a problem if a quote is left open."""
        return words_of(text, path, self.problems)
