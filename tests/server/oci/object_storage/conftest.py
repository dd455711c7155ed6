"""A server with object storage, and the real client of OCI for each of its users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.oci_storage import Storage, serving_storage

oci = pytest.importorskip("oci")


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    with serving_storage() as storage:
        yield storage


@pytest.fixture
def client(storage: Storage) -> Any:
    """The client of a project's admin."""
    return storage.clients["anouk"]


@pytest.fixture
def bucket(storage: Storage) -> str:
    """A new bucket."""
    return storage.bucket()


@pytest.fixture
def refused() -> Callable[..., tuple[int, str | None]]:
    """Calls a method that fails. Returns the status and the code of the error."""

    def call(method: Callable[..., Any], *args: Any, **named: Any) -> tuple[int, str | None]:
        with pytest.raises(oci.exceptions.ServiceError) as caught:
            method(*args, **named)
        return caught.value.status, caught.value.code

    return call
