"""Messages between the processes of a run, as records and as JSON."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.node import messages, records
from muster.node.channel import Channel
from muster.node.launch_message import (
    GivenFile,
    LaunchMessage,
    OutputFiles,
    Preflight,
    Probe,
    ProcessLaunch,
    ServiceLaunch,
)
from muster.node.messages import (
    ExitReport,
    Interface,
    InvalidMessage,
    decode,
    decode_launch,
    encode,
    encode_launch,
)

LAUNCH = LaunchMessage(
    incarnation=3,
    env={"A": "shared", "B": "shared"},
    processes=[ProcessLaunch({"B": "own"}, "0.out", "0.err", "error-0.json")],
    ranks=[OutputFiles("rank.out", "rank.err")],
    node_args=["--index=1"],
    launcher=["nice"],
    program=True,
    services=[
        ServiceLaunch(
            "one", ["serve"], {"X": "1"}, "1.log", "1.log", None, {"type": "answers"}, 5.0
        )
    ],
    gather=None,
    absent=[7],
    services_timeout=570.0,
    probe=Probe(1.0, 5.0, 3, 0.0, port=80, http="/up"),
    liveness=Probe(10.0, 1.0, 3, 0.0, command=["true"]),
    preflight=Preflight(["check"], 60.0),
    after_start=["true"],
    before_stop=None,
    hang_timeout=None,
    grace_period=30.0,
    cwd="/work",
    folder="/node",
    fresh=["/node/scratch"],
    output_folder="/run/outputs/rank-0",
    address="127.0.0.1",
    hostname="node-0",
    disk=None,
    disk_full=None,
    contained=True,
    keep=True,
    rank=5,
    of_array=True,
    reuses_slot=True,
    waits=True,
    given=[GivenFile("app.conf", "port = 80", 0o644), GivenFile("key", "AAEC", 0o400, True)],
)

ALL = [
    messages.Start(0),
    messages.Restart(LAUNCH),
    messages.Stop(1),
    messages.Kill(1),
    messages.Signal(1, 10),
    messages.Absent(1, [2, 3]),
    messages.Launch(
        LAUNCH, ["sh", "-c", "true"], ["/work"], {"/work/roster": "[]"}, mounts=[], empty=[]
    ),
    messages.Launch(
        LAUNCH,
        [],
        [],
        {},
        messages.Code("ab" * 32, "/work"),
        3,
        {"/o": 7},
        [
            messages.Mount("/n/data", 0o700, "cd" * 32, "/work/data", "a.csv"),
            messages.Mount("/data"),
        ],
        messages.Environment(["numpy"], "/bin/python3", "/n/environment"),
        messages.Outputs("/n/run/outputs", {"rank-7": "ef" * 32}),
        messages.SlotNode(7, 1),
        ["/n/run/outputs"],
    ),
    messages.ReservePorts([messages.PortRequest("a.0", 80, 2, preferred=True, held=False)]),
    messages.PortsReserved({"a.0": 80}, "no free port"),
    messages.FindFolders(["/data", "/more"], ["nas:/export"]),
    messages.FoldersFound(["/data"], {"nas:/export": "/mnt"}),
    messages.WriteFiles({"/work/roster": "[]"}),
    messages.WriteFiles({}, {"/work/roster": "eJyLjgUAARUAuQ=="}),
    messages.Release(),
    messages.Leave(),
    messages.HostFacts(
        user="me",
        folder="/folder",
        address="10.0.0.1",
        interfaces=[Interface("eth0", "10.0.0.1")],
        cpus=2,
        memory=1 << 30,
        gpus=[0, 1],
        python="3.9.18",
        time=1e9,
        incarnation=-1,
        executable="/bin/python",
        modules="/folder/modules",
        short="/folder",
        environ={"PATH": "/bin"},
        addresses=["10.0.0.1", "::1"],
        boot="2f0e",
    ),
    messages.Launched(0, 2),
    messages.Joined(0),
    messages.Started(0),
    messages.Ready(0),
    messages.DiskExceeded(0, 20, 10),
    messages.Installing(0),
    messages.ProgramDone(0),
    messages.Ended(0, ExitReport(1, 0, "exit", "boom", 1.5), kept=True),
    messages.RunCommand(None, "echo", {"A": "b"}, {}, "/", shield=True),
    messages.ShutDown(3, "why", only_if_silent=True),
    messages.SignalCommand(10, ranks_only=True),
    messages.CancelCommand(),
    messages.CommandStarted(12),
    messages.RankEnded(1, 0),
    messages.CommandEnded(0, "tail"),
    messages.Idle(1, 0.5, 1.5, 4096, 8192),
]


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_channel(message: Any) -> None:
    assert decode(json.loads(json.dumps(encode(message)))) == message


def test_every_type_of_message_is_covered() -> None:
    assert {type(message) for message in ALL} == set(messages._TYPES.values())


def test_a_launch_message_survives_encoding() -> None:
    assert decode_launch(json.loads(json.dumps(encode_launch(LAUNCH)))) == LAUNCH


def test_variables_of_one_process() -> None:
    assert LAUNCH.environment_of(0) == {"A": "shared", "B": "own"}


@pytest.mark.parametrize("name", LaunchMessage._fields)
def test_no_field_of_a_launch_message_may_be_missing(name: str) -> None:
    data = encode_launch(LAUNCH)
    del data[name]
    with pytest.raises(InvalidMessage, match=f"LaunchMessage: {name} is missing"):
        decode_launch(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"type": "bogus"}, "unknown message: {'type': 'bogus'}"),
        ({}, "unknown message: {}"),
        ([], r"unknown message: \[\]"),
        ({"type": []}, r"unknown message: {'type': \[\]}"),
        ({"type": {}}, "unknown message: {'type': {}}"),
        ({"type": None}, "unknown message: {'type': None}"),
        ({"type": "stop"}, "Stop: incarnation is missing"),
        ({"type": "stop", "incarnation": 0, "why": ""}, "Stop: unknown why"),
        (
            {"type": "signal", "x": 1},
            "Signal: incarnation is missing, number is missing, unknown x",
        ),
        (
            {"type": "ended", "incarnation": 0, "kept": False, "report": 1},
            "Ended: report must be an object, not 1",
        ),
        ({"type": "stop", "incarnation": True}, "Stop: incarnation must be an integer, not True"),
        (
            {"type": "absent", "incarnation": 0, "ranks": [0, "1"]},
            r"Absent: ranks\[1\] must be an integer, not '1'",
        ),
        ({"type": "restart", "launch": {}}, "LaunchMessage: incarnation is missing, env is miss"),
    ],
)
def test_invalid_messages_name_the_field(data: Any, text: str) -> None:
    with pytest.raises(InvalidMessage, match=text):
        decode(data)


@pytest.mark.parametrize("name", ["processes", "ranks", "services"])
@pytest.mark.parametrize("value", [None, 0, True, "x", {}, {"a": 1}, [None], [[]], ["x"]])
def test_lists_of_records_are_checked(name: str, value: Any) -> None:
    data = {"type": "restart", "launch": {**encode_launch(LAUNCH), name: value}}
    expected = rf"^LaunchMessage: {name}(\[0\])? must be an? (list|object), not "
    with pytest.raises(InvalidMessage, match=expected):
        decode(data)


def test_a_launch_message_may_have_no_probe() -> None:
    without = LAUNCH._replace(probe=None, liveness=None)
    assert decode(encode(messages.Restart(without))) == messages.Restart(without)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.sampled_from(ALL), st.data())
def test_a_changed_message_is_decoded_or_invalid(message: Any, data: st.DataObject) -> None:
    changed = json.loads(json.dumps(encode(message)))
    inner: Any = changed
    while isinstance(inner, (dict, list)) and inner:
        keys = sorted(inner) if isinstance(inner, dict) else range(len(inner))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(inner[key], (dict, list)) or data.draw(st.booleans()):
            inner[key] = data.draw(JSON)
            break
        inner = inner[key]
    check_decoding(changed)


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
@given(JSON)
def test_a_field_with_another_value_is_decoded_or_invalid(message: Any, value: Any) -> None:
    for name in message._fields:
        check_decoding({**json.loads(json.dumps(encode(message))), name: value})


@pytest.mark.parametrize("name", LaunchMessage._fields)
@given(JSON)
def test_a_launch_with_another_value_is_decoded_or_invalid(name: str, value: Any) -> None:
    launch = {**json.loads(json.dumps(encode_launch(LAUNCH))), name: value}
    check_decoding({"type": "restart", "launch": launch})


def check_decoding(data: Any) -> None:
    """What is decoded has the types of its annotations, and is encoded to the same data."""
    try:
        message: Any = decode(data)
    except InvalidMessage:
        return
    assert fits(message, type(message)), message
    assert sorted_json(without_defaults(encode(message), data)) == sorted_json(data)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value has an annotated type, which is evaluated by `typing`."""
    if kind is Any:
        return True
    if get_origin(kind) in (Union, UnionType):
        return any(fits(value, one) for one in get_args(kind))
    if get_origin(kind) is Sequence:
        return isinstance(value, list) and all(fits(item, *get_args(kind)) for item in value)
    if get_origin(kind) is Mapping:
        of_values = get_args(kind)[1]
        return isinstance(value, dict) and all(fits(item, of_values) for item in value.values())
    if hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        return isinstance(value, kind) and all(fits(getattr(value, n), hints[n]) for n in hints)
    if kind is float:
        return type(value) in (float, int) and abs(value) <= sys.float_info.max
    return type(value) is kind


def without_defaults(encoded: Any, data: Any) -> Any:
    """Encoded data without fields that the given data do not have."""
    if isinstance(encoded, dict):
        return {k: without_defaults(encoded[k], data[k]) for k in encoded if k in data}
    if isinstance(encoded, list):
        return list(map(without_defaults, encoded, data))
    return encoded


def sorted_json(data: Any) -> str:
    return json.dumps(data, sort_keys=True)


def test_fields_of_nested_records_are_checked() -> None:
    data = encode_launch(LAUNCH)
    del data["processes"][0]["stdout"]
    data["probe"]["bogus"] = 1
    with pytest.raises(InvalidMessage, match="ProcessLaunch: stdout is missing"):
        decode_launch(data)
    data["processes"][0]["stdout"] = "0.out"
    with pytest.raises(InvalidMessage, match="Probe: unknown bogus"):
        decode_launch(data)


# --- invalid messages on a channel

BROKEN = [b"{", b"\xff", b"[" * 100_000, b"", b"5", b'{"type": []}', b'{"type": "stop"}']


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Channel]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, Channel(theirs)


@pytest.mark.parametrize("broken", BROKEN)
def test_an_invalid_message_ends_the_stream(
    ends: tuple[socket.socket, Channel], broken: bytes
) -> None:
    sock, channel = ends
    good = json.dumps(encode(messages.Kill(1))).encode() + b"\n"
    sock.sendall(good + broken + b"\n" + good)
    received: list[Any] = []
    while not channel.closed:
        received += channel.receive()
    assert isinstance(channel.invalid, InvalidMessage)
    assert received == [messages.Kill(1)]
    sock.sendall(good)
    assert channel.receive() == [], "without blocking"


def test_the_end_of_the_stream_is_no_invalid_message(ends: tuple[socket.socket, Channel]) -> None:
    sock, channel = ends
    sock.close()
    assert channel.receive() == []
    assert (channel.closed, channel.invalid) == (True, None)


def test_waiting_ends_with_an_invalid_message(ends: tuple[socket.socket, Channel]) -> None:
    sock, channel = ends
    sock.sendall(b"{}\n")
    with pytest.raises(InvalidMessage, match=r"unknown message: \{\}"):
        channel.wait_for(messages.Start)


def test_draining_ends_with_an_invalid_message(ends: tuple[socket.socket, Channel]) -> None:
    sock, channel = ends
    os.set_blocking(channel.fileno(), False)
    sock.sendall(json.dumps(encode(messages.Joined(0))).encode() + b"\n{}\n")
    assert channel.drain() == [messages.Joined(0)]
    assert channel.invalid is not None


def test_forked_agents_have_prepared_what_they_read_to_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "_FIELDS", {})
    messages.prepare_agents()
    prepared = set(records._FIELDS)
    decode(json.loads(json.dumps(encode(messages.Restart(LAUNCH._replace(given=[]))))))
    assert set(records._FIELDS) <= prepared
