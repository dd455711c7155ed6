"""A proxy for clients of HTTPS that takes every host for a port of loopback: the names of a test's
domain need no DNS, and the clients are as they are."""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import parse_headers
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import cast
from urllib.parse import quote

from support.servers import serving

_BLOCK = 1 << 16


class ConnectProxy(ThreadingTCPServer):
    """Answers CONNECT (RFC 9110, section 9.3.6)."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, login: str = "") -> None:
        """port: where everything leads to. login: `NAME:PASSWORD` that clients need."""
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.target, self.login = ("127.0.0.1", port), login
        #: The hosts that clients have asked for.
        self.hosts: set[str] = set()

    @property
    def url(self) -> str:
        """For the variable HTTPS_PROXY."""
        name, colon, password = self.login.partition(":")
        login = f"{quote(name)}:{quote(password, safe='')}@" if colon else ""
        return f"http://{login}127.0.0.1:{self.server_address[1]}"


class _Tunnel(StreamRequestHandler):
    rbufsize = 0  # what follows the headers is the tunnel's

    def handle(self) -> None:
        verb, host, _version = self.rfile.readline().decode().split()
        headers = parse_headers(self.rfile)
        if verb != "CONNECT":
            self.wfile.write(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
            return
        proxy = cast(ConnectProxy, self.server)
        login = b64encode(proxy.login.encode()).decode()
        if proxy.login and headers["Proxy-Authorization"] != f"Basic {login}":
            self.wfile.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        proxy.hosts.add(host.rpartition(":")[0])
        with socket.create_connection(proxy.target) as other:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = Thread(target=_copy, args=(other, self.connection), daemon=True)
            back.start()
            _copy(self.connection, other)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    # a peer that closes its connection abruptly ends the tunnel as well
    with suppress(OSError):
        while block := source.recv(_BLOCK):
            target.sendall(block)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def connect_proxy(port: int, login: str = "") -> Iterator[ConnectProxy]:
    """A proxy to a port of loopback, until the block ends. login: see `ConnectProxy`."""
    proxy = ConnectProxy(port, login)
    with serving(proxy):
        yield proxy
