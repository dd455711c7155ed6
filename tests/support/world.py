"""A machine with its own network, in which tests run commands; it is invisible to others.

It has an interface with a default route. An address on its loopback stands for
the internet; there is a service on 127.0.0.1, and a name server where systemd has its own.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

INTERNET = "203.0.113.7"  # RFC 5737: reserved for documentation
#: Both services listen on it and identify themselves.
PORT = 5000

_WORLD = """
    import os, socket, struct, sys, threading
    from muster.engines.local import namespaces
    from muster.engines.local.network.netlink import Netlink

    folder, user, internet, port, *command = sys.argv[1:]
    root = os.geteuid() == 0
    kinds = namespaces.CLONE_NEWNET | namespaces.CLONE_NEWNS
    outside = os.geteuid(), os.getegid()
    namespaces.unshare(kinds | (0 if root else namespaces.CLONE_NEWUSER))
    if not root:
        namespaces.map_user((0, 0), outside)
    namespaces.mount("none", "/", None, namespaces.MS_REC | namespaces.MS_PRIVATE)

    netlink = Netlink()
    netlink.up(1)
    netlink.add_address(1, internet, 32)
    netlink.add_bridge("wire", bytes([2] * 5 + [1]))
    netlink.add_veth("far", socket.if_nametoindex("wire"), "near", os.getpid(), bytes([2] * 6))
    near = socket.if_nametoindex("near")
    netlink.up(near)
    netlink.add_address(near, "192.0.2.2", 24)
    netlink.add_default_route("192.0.2.1")
    netlink.close()
    with open(f"{folder}/machine-resolv.conf", "w") as file:
        file.write("search example.test\\nnameserver 127.0.0.53\\n")
    namespaces.bind(file.name, "/etc/resolv.conf")

    def serve(address, text):
        server = socket.create_server((address, int(port)), backlog=64)
        def answer():
            while True:
                with server.accept()[0] as connection:
                    connection.sendall(text)
        threading.Thread(target=answer).start()

    def name_server():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.53", 53))
        def answer():
            while True:
                query, sender = sock.recvfrom(512)
                end = query.index(0, 12) + 5
                a = query[end - 3 : end - 2] == b"\\x01"  # not AAAA
                head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, int(a), 0, 0)
                found = struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(internet)
                sock.sendto(head + query[12:end] + (found if a else b""), sender)
        threading.Thread(target=answer).start()

    ready, ours = os.pipe()
    if os.fork() == 0:
        namespaces.die_with_parent()
        serve("127.0.0.1", b"the machine")
        serve(internet, b"the internet")
        name_server()
        os.close(ours)
        os.close(ready)
        threading.Event().wait()
    os.close(ours)
    os.read(ready, 1)
    os.close(ready)
    if user == "user":
        before = os.geteuid(), os.getegid()
        namespaces.unshare(namespaces.CLONE_NEWUSER)
        namespaces.map_user((12345, 12345), before)  # its rights end with the next program
    os.execvp(command[0], command)
"""


def run_in_world(
    folder: Path, command: list[str], *, user: bool = False, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command on it. user: without any privileges; otherwise as the present user, or as root
    of a user namespace."""
    code = textwrap.dedent(_WORLD)
    kind = "user" if user else "root"
    argv = [sys.executable, "-c", code, str(folder), kind, INTERNET, str(PORT), *command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done
