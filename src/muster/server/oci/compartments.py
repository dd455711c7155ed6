"""Compartments: a project of Muster is one. The default project is the root compartment, which has
the OCID of the tenancy, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from muster.identity import DEFAULT_PROJECT
from muster.spec.ocids import TENANCY, compartment_ocid

if TYPE_CHECKING:
    from muster.store.base import Store

#: Seconds for which the names of projects are remembered.
_REMEMBERED = 5.0


class Compartments:
    """Finds projects by OCIDs. Threads may share it."""

    def __init__(self, store: Callable[[], Store], others: Mapping[str, str]) -> None:
        """others: further OCIDs, such as those of a tenancy in OCI, and their projects."""
        self._store, self._others = store, others
        self._known: dict[str, str] = {}
        self._until = 0.0

    def project(self, text: str) -> str | None:
        """The project that is the compartment with this OCID; None if there is none."""
        if text == TENANCY:
            return DEFAULT_PROJECT
        if text in self._others:
            return self._others[text]
        if text not in self._known or self._until <= time.monotonic():
            until = time.monotonic() + _REMEMBERED
            names = [project.name for project in self._store().accounts.projects()]
            self._known = {compartment_ocid(name): name for name in names}
            self._until = until
        return self._known.get(text)

    @property
    def tenancy(self) -> str | None:
        """The OCID of a tenancy in OCI that is the default project; None if there is none."""
        for text, name in self._others.items():
            if name == DEFAULT_PROJECT and text.startswith("ocid1.tenancy."):
                return text
        return None

    def ocid(self, project: str) -> str:
        """The OCID of a project: the one of `others`, if there is one, since clients know that."""
        for text, name in self._others.items():
            if name == project:
                return text
        return compartment_ocid(project)


def is_below(name: str, project: str, parents: Mapping[str, str]) -> bool:
    """Whether a project is below another one, at any depth. parents: of all projects."""
    while name != DEFAULT_PROJECT:
        name = parents.get(name, DEFAULT_PROJECT)
        if name == project:
            return True
    return False
