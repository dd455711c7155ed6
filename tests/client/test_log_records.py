"""The lines of a run's log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from muster.api.streams import LogChunk, StreamInfo
from muster.client.log_records import LogRecord, records


@pytest.mark.shows("distributed-jobs/capability-logging")
def test_records_have_the_node_and_stream_of_their_line() -> None:
    stream = StreamInfo(3, "f", 1, "workers", "id-1", 0, "stderr")
    chunk = LogChunk(1_500_000_000, stream, b"a\r b\n\n\xff\xfeok\n", attempt=2)
    found = list(records(chunk))
    assert [record.message for record in found] == ["a\r b", "", "\ufffd\ufffdok"]
    assert found[0] == LogRecord(
        time=datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
        rank=1,
        group="workers",
        node_id="id-1",
        attempt=2,
        stream="stderr",
        message="a\r b",
        local_rank=0,
    )
    assert chunk.data.endswith(b"\xff\xfeok\n")  # the bytes stay as they were written
