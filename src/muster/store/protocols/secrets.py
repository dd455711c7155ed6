"""The projects' secrets. Values are encrypted by who stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from muster.store.account_records import SecretRecord


class Secrets(Protocol):
    """See the module."""

    def set(self, project: str, name: str, sealed: str, *, by: str, now: float) -> SecretRecord:
        """Add a secret, or replace its value. Raises NotFound if there is no such project."""
        ...

    def delete(self, project: str, name: str) -> bool:
        """Delete a secret and its value. False if there is none."""
        ...

    def listing(self, project: str) -> list[SecretRecord]:
        """The secrets of a project, by name."""
        ...

    def values(self, project: str, names: Collection[str]) -> dict[str, str]:
        """The encrypted values of these secrets, of those that there are."""
        ...
