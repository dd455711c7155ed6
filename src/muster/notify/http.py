"""One POST to a URL that a user has given.

The address is resolved here, checked, and then connected to: a name that resolves to something else
a moment later leads nowhere. Redirects are not followed, proxies of the environment are not used.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from threading import Timer
from urllib.parse import SplitResult

from muster.escapes import visible_line
from muster.notify.retries import Answer
from muster.storage.private_addresses import is_public

#: Seconds for everything from connecting to the answer.
TIMEOUT = 10.0
#: Bytes of an answer that are read, and characters that are shown.
_MOST_READ, _MOST_SHOWN = 1000, 200
_HINT = "allow_private_addresses in server.toml permits it"


class PrivateAddressError(OSError):
    """A host that is not in the public internet."""


def post(
    url: SplitResult, body: bytes, headers: Mapping[str, str], *, allow_private: bool
) -> Answer:
    """Send a request. allow_private: whether it may go to any address, and without TLS."""
    if url.scheme.lower() != "https" and not allow_private:
        return Answer(False, "not sent: the URL has to be https", final=True)
    connection = _Connection(url, allow_private=allow_private)
    # a receiver that sends a byte now and then would never exceed the timeout of a socket
    timer = Timer(TIMEOUT, connection.abort)
    timer.daemon = True
    timer.start()
    try:
        target = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
        connection.request("POST", target, body, dict(headers))
        response = connection.getresponse()
        return _answer(response, response.read(_MOST_READ))
    except PrivateAddressError as error:
        return Answer(False, str(error), final=True)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(False, _reason(error, connection, url.hostname or ""))
    finally:
        timer.cancel()
        connection.close()


class _Connection(http.client.HTTPConnection):
    """Connects to a checked address, with TLS if the URL says so."""

    def __init__(self, url: SplitResult, *, allow_private: bool) -> None:
        self._tls = url.scheme.lower() == "https"
        self._allow_private = allow_private
        self.aborted = False
        port = url.port or (443 if self._tls else 80)
        super().__init__(url.hostname or "", port, timeout=TIMEOUT)
        self.default_port = 443 if self._tls else 80  # not part of the header Host

    def connect(self) -> None:
        self.sock = connect(self.host, self.port, allow_private=self._allow_private)
        self._check()
        if self._tls:
            context = ssl.create_default_context()
            # the handshake follows when `abort` can end it: the receiver may be slow at it, too
            secured = context.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock = secured
            self._check()
            secured.do_handshake()

    def _check(self) -> None:
        """Raises TimeoutError if `abort` was called before it found the socket of now."""
        if self.aborted:
            raise TimeoutError

    def abort(self) -> None:
        """End the exchange, from another thread."""
        self.aborted = True
        if (found := self.sock) is not None:
            try:
                # that of TLS would also forget its state, which the other thread uses
                socket.socket.shutdown(found, socket.SHUT_RDWR)
            except OSError:  # it has just ended, or been replaced by the one of TLS
                return


def connect(host: str, port: int, *, allow_private: bool) -> socket.socket:
    """A connection to a host, at an address that was checked. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [entry for entry in found if allow_private or is_public(str(entry[4][0]))]
    if not addresses:
        text = f"not sent: {host} is not in the public internet; {_HINT}"
        raise PrivateAddressError(text)
    deadline, failed = time.monotonic() + TIMEOUT, OSError("no address")
    for family, kind, protocol, _, address in addresses:
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(max(0.1, deadline - time.monotonic()))
            made.connect(address)
        except OSError as error:
            made.close()
            failed = error
            continue
        made.settimeout(TIMEOUT)
        return made
    raise failed


def _answer(response: http.client.HTTPResponse, content: bytes) -> Answer:
    text = visible_line(content.decode(errors="replace").strip())[:_MOST_SHOWN]
    said = f"HTTP {response.status}{f': {text}' if text else ''}"
    if 200 <= response.status < 300:
        return Answer(True, said)
    if 300 <= response.status < 400:
        location = visible_line(response.headers.get("location", ""))[:_MOST_SHOWN]
        hint = f"redirects to {location}: use that URL" if location else "redirects"
        return Answer(False, f"HTTP {response.status}: {hint}")
    wait = _seconds(response.headers.get("retry-after", ""))
    # gone for good (RFC 9110)
    return Answer(False, said, retry_after=wait, final=response.status == 410)


def _seconds(text: str) -> float:
    """The wait that a header Retry-After wants; 0 if it has none."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0


def _reason(error: Exception, connection: _Connection, host: str) -> str:
    if connection.aborted or isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:.0f}s"
    if isinstance(error, socket.gaierror):
        return f"{host} cannot be resolved: {error.strerror}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {host} cannot be verified: {error.verify_message}"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    return visible_line(getattr(error, "strerror", None) or str(error))[:_MOST_SHOWN]
