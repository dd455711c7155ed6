"""CPUs, memory, GPUs and network addresses of this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import time
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

#: TEST-NET-1, reserved for documentation. Connecting a datagram socket sends no packet.
_REMOTE = ("192.0.2.1", 9)
#: Has a folder for each NVIDIA device.
_DRIVERS = "/proc/driver/nvidia/gpus"
_SIOCGIFADDR = 0x8915
#: Of netlink (linux/netlink.h, linux/rtnetlink.h): what is asked for, and what comes.
_NEWADDR, _GETADDR, _DUMP, _DONE, _ERROR = 20, 22, 0x301, 3, 2
_ADDRESS, _LOCAL = 1, 2


class MachineFacts(NamedTuple):
    """What somebody wants to know who may use this machine."""

    #: See `own_address`; "" if there is none.
    address: str
    cpus: int
    #: Bytes.
    memory: int
    gpus: Sequence[int]
    #: The version of the running Python.
    python: str
    #: The clock (epoch seconds).
    time: float
    #: The controllers with which this user can limit nodes (`control_groups`), if that was tried.
    limits: Sequence[str] = ()
    #: Of the kernel: the same until it is started again; "" if that is not known, or not asked for.
    boot: str = ""


def facts() -> MachineFacts:
    """Facts of this machine."""
    try:
        address = own_address()
    except OSError:
        address = ""
    version = "%d.%d.%d" % sys.version_info[:3]
    return MachineFacts(address, count_cpus(), count_memory(), gpu_numbers(), version, time.time())


def boot_id() -> str:
    """See `MachineFacts.boot`."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def count_cpus() -> int:
    """The number of CPUs that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def count_memory() -> int:
    """Bytes of memory: the machine's, or fewer if a control group limits this process."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory, memory_limit() or memory)


def memory_limit(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> int | None:
    """The lowest memory limit (bytes) of this process's control groups; None without a limit.

    root: where control groups are mounted. own: the file that lists this process's groups.
    """
    try:
        with open(own) as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root + "/memory", "memory.limit_in_bytes"
        else:
            continue
        groups = _ancestry(path.strip("/"))
        limits += [_read_number("%s/%s/%s" % (top, group, name)) for group in groups]
    return min((limit for limit in limits if limit is not None), default=None)


def _ancestry(group: str) -> Iterator[str]:
    """The path of a group, then those of its parents; the root's, which is empty, last."""
    while group:
        yield group
        group = group.rpartition("/")[0]
    yield ""


def _read_number(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def gpu_numbers(root: str = "/dev", drivers: str = _DRIVERS) -> List[int]:
    """Numbers of the NVIDIA devices (/dev/nvidia0, ...) that CUDA_VISIBLE_DEVICES allows. drivers:
    has a folder for each, with its UUID."""
    names = [name[len("nvidia") :] for name in os.listdir(root) if name.startswith("nvidia")]
    present = sorted(int(name) for name in names if name.isdigit())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    parts = [part.strip() for part in visible.split(",")]
    allowed = {int(part) for part in parts if part.isdigit()}
    uuids = tuple(part for part in parts if part.startswith("GPU-"))  # which may be shortened
    if uuids:
        known = _gpu_uuids(drivers)
        allowed |= {number for number, uuid in known.items() if uuid.startswith(uuids)}
    return [number for number in present if number in allowed]


def _gpu_uuids(drivers: str) -> Dict[int, str]:
    """The UUIDs of NVIDIA devices, by number."""
    found = {}
    for name in os.listdir(drivers) if os.path.isdir(drivers) else ():
        with contextlib.suppress(OSError), open("%s/%s/information" % (drivers, name)) as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
            number = fields.get("Device Minor", "").strip()
            if number.isdigit():
                found[int(number)] = fields.get("GPU UUID", "").strip()
    return found


def own_address() -> str:
    """The source address of packets to other machines; without a route, that of the first
    interface, or of the host name. Raises OSError if that has none."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with probe, contextlib.suppress(OSError):
        probe.connect(_REMOTE)
        return str(probe.getsockname()[0])
    for _, address in interfaces():
        return address
    return socket.gethostbyname(socket.gethostname())


def addresses() -> List[str]:
    """All addresses of this machine, of IPv4 and of IPv6, also those of the loopback interface. On
    systems other than Linux those of `interfaces` and of the loopback. Empty if the kernel does not
    say."""
    if not hasattr(socket, "AF_NETLINK"):
        return [*(address for _, address in interfaces()), "127.0.0.1", "::1"]
    found: List[str] = []
    with contextlib.suppress(OSError), _netlink() as query:
        query.send(struct.pack("=IHHIIB3x", 20, _GETADDR, _DUMP, 1, 0, socket.AF_UNSPEC))
        kind = 0
        while kind not in (_DONE, _ERROR):
            data = query.recv(1 << 16)
            while data and kind not in (_DONE, _ERROR):
                size, kind = struct.unpack_from("=IH", data)
                if kind == _NEWADDR:
                    found += _address_in(data[16:size])
                data = data[(size + 3) & ~3 :]
    return found


def _netlink() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)


def _address_in(message: bytes) -> Iterator[str]:
    """The address of an interface. message: `ifaddrmsg` and its attributes."""
    family, found, rest = message[0], {}, message[8:]
    while len(rest) >= 4:
        size, kind = struct.unpack_from("=HH", rest)
        found[kind] = rest[4:size]
        rest = rest[max(4, (size + 3) & ~3) :]
    # of a tunnel, the other attribute is the address of its other end
    address = found.get(_LOCAL, found.get(_ADDRESS))
    if address is not None and family in (socket.AF_INET, socket.AF_INET6):
        yield socket.inet_ntop(family, address)


def interfaces() -> List[Tuple[str, str]]:
    """The name and the IPv4 address of each network interface that has one, without the
    loopback."""
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(query.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # the interface has no address
            if name != "lo":
                found.append((name, socket.inet_ntoa(answer[20:24])))
    return found
