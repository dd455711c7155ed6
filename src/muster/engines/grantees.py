"""Who gets the rights that an engine needs, where an administrator has to grant them."""

from __future__ import annotations

from msgspec import Struct


class Grantees(Struct, frozen=True):
    """Users of an infrastructure, by the names that it has for them."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: A name, or NAMESPACE:NAME.
    service_accounts: tuple[str, ...] = ()
