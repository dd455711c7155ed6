"""TLS between a node that dials and its supervisor. The node knows the run's authority.

Most node servers need none, and the import of `ssl` would take half of their start: whoever needs
this module imports it when that is known.
"""

from __future__ import annotations

import socket
import ssl


def supervisor_name(run_id: str) -> str:
    """The name in the certificate of a run's supervisor, whatever its host is called. Nodes say it
    at the start of the handshake, so that one port serves many runs."""
    return "supervisor.%s" % run_id


def client_context(authority: str) -> ssl.SSLContext:
    """For a node. authority: the certificate of the run's authority, PEM. Raises ValueError if it
    is none."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=authority)
    except ssl.SSLError as error:
        raise ValueError("not a certificate: %s" % (error.reason or error)) from None
    return context


def server_context() -> ssl.SSLContext:
    """For a supervisor."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # no session is resumed
    return context


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def wrap(
    context: ssl.SSLContext, sock: socket.socket, *, server: bool, name: str | None = None
) -> ssl.SSLSocket:
    """A connected socket with TLS, which it owns. It does its handshake when it is used
    (`node.connection`). Raises OSError.

    name: that of the supervisor, for a node.
    """
    return context.wrap_socket(
        sock, server_side=server, server_hostname=name, do_handshake_on_connect=False
    )
