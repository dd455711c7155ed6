"""TLS to an API server: whom to trust, and the certificate of the client."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from muster.engines.kubernetes.kubeconfig import Entry
from muster.engines.kubernetes.plugins import Issued
from muster.engines.kubernetes.refusals import CannotCall
from muster.escapes import visible_line


def context_for(cluster: Entry, user: Entry, issued: Issued) -> ssl.SSLContext:
    """With what a cluster and its user have in kubectl's configuration, and a plug-in has issued.
    Raises CannotCall."""
    is_insecure = cluster.flag("insecure-skip-tls-verify")
    if is_insecure and any(cluster.text(f"certificate-authority{end}") for end in ("", "-data")):
        why = "has no meaning beside certificate-authority: leave one of them out"
        raise cluster.wrong("insecure-skip-tls-verify", why)
    try:
        context = trusting(cluster.data("certificate-authority"))
    except ValueError:
        raise cluster.wrong("certificate-authority", "is no certificate in PEM") from None
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = issued.certificate, issued.key
    if certificate is None:
        certificate, key = user.data("client-certificate"), user.data("client-key")
        if certificate is not None and key is None:
            raise user.wrong("client-certificate", "has no client-key beside it")
    if certificate is not None:
        try:
            with _nameless(certificate) as first, _nameless(key or b"") as second:
                # without a password, OpenSSL would ask for it at the terminal
                context.load_cert_chain(first, second, password="")
        except (OSError, ValueError):
            what = "what exec has issued" if issued.certificate else "client-certificate"
            why = "is no certificate with its key, both in PEM and without a password"
            raise user.wrong(what, why) from None
    return context


def trusting(authority: bytes | None) -> ssl.SSLContext:
    """authority: in PEM; None: those of the system. Raises ValueError if it is none."""
    try:
        # files may have comments in any language
        text = None if authority is None else authority.decode("ascii", errors="ignore")
        if text is not None and "BEGIN" not in text:
            raise ValueError
        context = ssl.create_default_context(cadata=text)
    except ssl.SSLError:
        raise ValueError from None
    except OSError as error:
        file = visible_line(os.environ.get("SSLKEYLOGFILE", ""))
        why = f"SSLKEYLOGFILE of the environment is {file}, which cannot be written"
        raise CannotCall(f"{why}: {error.strerror}: correct or unset it", refused=True) from None
    # authorities of clusters often lack extensions that it requires since Python 3.13
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


@contextlib.contextmanager
def _nameless(content: bytes) -> Iterator[str]:
    """The path of a file with some content, for OpenSSL, which reads keys from files only. It has
    no name in any folder: nothing is left of it, also if this process is killed."""
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("pem"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    with file:
        file.write(content)
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"
