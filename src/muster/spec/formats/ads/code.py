"""Where a program's code is: next to the YAML file, or below the folder that ADS's images have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from muster.spec.formats.ads.conversion import Conversion
from muster.spec.formats.notes import Notes

#: ADS: the folder of the code in an image, unless codeDir names another.
_CODE = "/code"


def git_source(url: str | None, branch: str | None, commit: str | None) -> dict[str, str]:
    """The field `git` of a spec, without the parts that the YAML does not have."""
    given = {"url": url, "branch": branch, "commit": commit}
    return {name: value for name, value in given.items() if value is not None}


class CodePaths:
    """Makes paths below the image's code folder relative, as programs start in that folder here."""

    def __init__(self, code_dir: str | None, notes: Notes) -> None:
        folder = (code_dir or _CODE).rstrip("/")
        self._folder = re.compile(rf"(?<![\w./~$}}-]){re.escape(folder)}(?:/+|(?![\w.-]))")
        self._notes = notes

    def relative(self, *words: str) -> list[str]:
        """The words with paths relative to the code. Adds a note for each that changes."""
        return [self._relative(word) for word in words]

    def relative_values(self, values: Mapping[str, str]) -> dict[str, str]:
        """The same for the values of variables."""
        return {name: self._relative(text) for name, text in values.items()}

    def _relative(self, text: str) -> str:
        if "://" in text:
            return text

        def shortened(match: re.Match[str]) -> str:
            rest = text[match.end() :]
            return "" if rest and not rest[0].isspace() and match[0].endswith("/") else "."

        made = self._folder.sub(shortened, text)
        if made != text:
            self._notes.add("", f"{text} is {made} here: programs start where the code is")
        return made


def local_code(entry: str, path: str, conversion: Conversion) -> dict[str, Any]:
    """The artifact and entry point of a program next to the YAML file. path: of the field."""
    file = conversion.folder / entry
    if not os.path.isfile(file):
        conversion.refuse(path, f"{file} not found", "put the program next to the YAML")
    return {"artifact": str(conversion.folder), "entrypoint": entry}


def python_path(paths: Iterable[str]) -> Mapping[str, str]:
    """PYTHONPATH with these folders, relative to where programs start."""
    joined = ":".join(paths)
    return {"PYTHONPATH": joined} if joined else {}
