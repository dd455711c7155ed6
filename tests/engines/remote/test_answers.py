"""What node servers say that no node server says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.engines.remote.answers import check
from muster.node import messages
from muster.node.messages import ExitReport, InvalidMessage, Message, decode, encode

FACTS = messages.HostFacts(
    user="me",
    folder="/folder",
    address="10.0.0.1",
    interfaces=[messages.Interface("eth0", "10.0.0.1")],
    cpus=2,
    memory=1 << 30,
    gpus=[0, 1],
    python="3.9.18",
    time=1e9,
    incarnation=-1,
    executable="/bin/python",
    modules="/folder/modules",
    short="/folder",
    environ={"PATH": "/bin", "ODD": "\udcff"},
)
REPORT = ExitReport(1, 0, "exit", "boom", 1.5)
SAID: list[Any] = [
    FACTS,
    messages.PortsReserved({"a.0": 80}, ""),
    messages.FoldersFound(["/data"], {"nas:/export": "/mnt"}),
    messages.Launched(0, 2),
    messages.Joined(0),
    messages.Started(0),
    messages.Ready(0),
    messages.DiskExceeded(0, 20, 10),
    messages.ProgramDone(0),
    messages.Ended(0, REPORT, kept=True),
]


@pytest.mark.parametrize("message", SAID, ids=lambda one: type(one).__name__)
def test_what_a_node_server_says(message: Message) -> None:
    check(message)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (messages.Kill(0), "Kill is no message of a node server"),
        (FACTS._replace(address="a\nb"), r"HostFacts: address cannot be 'a\nb'"),
        (FACTS._replace(user="\ud800"), r"HostFacts: user cannot be '\ud800'"),
        (FACTS._replace(cpus=0), "HostFacts: cpus cannot be 0"),
        (FACTS._replace(memory=-1), "HostFacts: memory cannot be -1"),
        (FACTS._replace(gpus=[0, 1 << 64]), f"HostFacts: gpus[1] cannot be {1 << 64}"),
        (FACTS._replace(incarnation=-2), "HostFacts: incarnation cannot be -2"),
        (FACTS._replace(folder="x"), "HostFacts: folder cannot be 'x'"),
        (FACTS._replace(short="/x\0"), r"HostFacts: short cannot be '/x\x00'"),
        (messages.PortsReserved({"a.0": 0}, ""), "PortsReserved: numbers['a.0'] cannot be 0"),
        (messages.PortsReserved({"\ud800": 1}, ""), r"PortsReserved: numbers cannot be '\ud800'"),
        (messages.Launched(0, 1 << 63), f"Launched: attempt cannot be {1 << 63}"),
        (messages.Ended(0, REPORT._replace(signal=65), kept=True), "Ended: signal cannot be 65"),
        (messages.Ended(0, REPORT._replace(raised_at=1e300), kept=True), "Ended: raised_at cannot"),
        (
            messages.Ended(0, REPORT._replace(exit_code=1 << 63), kept=True),
            f"Ended: report: exit_code cannot be {1 << 63}",
        ),
    ],
)
def test_what_no_node_server_says(message: Message, text: str) -> None:
    with pytest.raises(InvalidMessage) as error:
        check(message)
    assert text in str(error.value)
    assert len(str(error.value)) < 200


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=3), part),
    max_leaves=5,
)


@given(message=st.sampled_from(SAID), data=st.data())
def test_a_changed_message_is_taken_or_invalid(message: Any, data: st.DataObject) -> None:
    changed = encode(message)
    changed[data.draw(st.sampled_from(sorted(changed)))] = data.draw(_JSON)
    try:
        check(decode(changed))
    except InvalidMessage as error:
        str(error).encode()
