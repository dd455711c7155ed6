"""NATS and Kafka, with the libraries of the extras `nats` and `kafka`."""

from __future__ import annotations

import asyncio

from muster.escapes import visible_line
from muster.notify.formats import Message
from muster.notify.retries import Answer
from muster.notify.targets import Target, TargetKind
from muster.store.outbox_records import OutboxEntry

#: Seconds.
_TIMEOUT = 10


def publish(target: Target, entry: OutboxEntry, message: Message) -> Answer:
    """Publish an event, and wait until the broker has it."""
    send = _nats if target.kind == TargetKind.NATS else _kafka
    try:
        return send(target, entry, message)
    except ModuleNotFoundError as error:
        extra = f"pip install 'muster-jobs[{target.kind}]'"
        return Answer(False, f"not sent: {error.name} is missing on the server: {extra}")
    except TimeoutError:
        return Answer(False, f"no answer within {_TIMEOUT}s")
    except Exception as error:  # noqa: BLE001  each library raises its own errors
        return Answer(False, visible_line(f"{type(error).__name__}: {error}")[:200])


def _nats(target: Target, entry: OutboxEntry, message: Message) -> Answer:
    from nats.aio.client import Client

    async def send() -> None:
        client, url = Client(), target.url
        await client.connect(
            url._replace(path="", query="").geturl(),
            connect_timeout=_TIMEOUT,
            allow_reconnect=False,
            max_reconnect_attempts=0,
        )
        try:
            # JetStream keeps one of several messages with this id
            headers = {"Nats-Msg-Id": entry.id, "content-type": message.content_type}
            await client.publish(target.topic, message.body, headers=headers)
            await client.flush(_TIMEOUT)
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(send(), _TIMEOUT))
    return Answer(True, f"published to {target.topic}")


def _kafka(target: Target, entry: OutboxEntry, message: Message) -> Answer:
    from confluent_kafka import KafkaError, Producer

    failed: list[KafkaError] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    url = target.url
    servers = f"{url.hostname}:{url.port or 9092}"
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "message.timeout.ms": _TIMEOUT * 1000,
            "enable.idempotence": True,
        }
    )
    # events of one subject are in one partition, in their order
    headers: dict[str, str | bytes | None] = {
        "ce_id": entry.id,
        "content-type": message.content_type,
    }
    producer.produce(
        target.topic,
        message.body,
        key=entry.subject,
        headers=headers,
        on_delivery=note,
    )
    if producer.flush(_TIMEOUT):
        return Answer(False, f"no answer of {servers} within {_TIMEOUT}s")
    if failed:
        return Answer(False, visible_line(failed[0].str())[:200])
    return Answer(True, f"published to {target.topic}")
