"""The public keys of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster.store.account_records import PublicKeyRecord


class Keys(Protocol):
    """See the module."""

    def insert(self, key: PublicKeyRecord) -> None:
        """Add a key. Raises AlreadyExists if it is there, of whomever, NotFound if there is
        no such user."""
        ...

    def delete(self, fingerprint: str) -> bool:
        """Delete a key. False if there is none."""
        ...

    def get(self, fingerprint: str) -> PublicKeyRecord:
        """The key with this fingerprint. Raises NotFound."""
        ...

    def listing(self, user: str) -> list[PublicKeyRecord]:
        """The keys of a user, the oldest first."""
        ...
