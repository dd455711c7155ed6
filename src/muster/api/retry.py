"""Which replicas of an array run again."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Retry(Struct, frozen=True):
    """See `MusterAPI.prepare_retry`."""

    #: `failed`; `unfinished`: all that have not succeeded, also those that never started.
    which: Literal["failed", "unfinished"] = "failed"
    #: These numbers instead, whatever became of them: `3,17,40-42`.
    only: str | None = None
    #: With the code as it is now where the Job's was read, instead of the Job's.
    update_code: bool = False
