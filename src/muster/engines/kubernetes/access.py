"""How the API server of a profile is reached, and with which credentials: from the files that
kubectl reads, or as the service account of the pod in which Muster runs.

Which files are read, and what plug-ins find in their environment, is as whoever has submitted the
run had it. What that lacks, as on a server, is as in the environment of this process. So is the
proxy of the environment: it depends on where this process runs.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import ssl
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.kubernetes import proxies
from muster.engines.kubernetes.auth_providers import provider_token
from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.kubernetes.kubeconfig import (
    MOST_CERTIFICATE,
    Context,
    Entry,
    absolute,
    bounded,
    exists,
    paths_of,
    read_context,
)
from muster.engines.kubernetes.plugins import Issued, run_plugin
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.refusals import CannotCall
from muster.escapes import visible_line

__all__ = [
    "Access",
    "Credentials",
    "configuration_of",
    "load",
    "namespace_of",
    "ways_to",
    "why_no_cluster",
    "why_not_installed",
]

#: The packages of the extra `kubernetes`.
_NEEDED = "requests", "urllib3"
_INSTALL = "its HTTP client is not installed: pip install 'muster-jobs[kubernetes]'"
_DEFAULT_FILE = "~/.kube/config"
#: Kubernetes: the folder of a pod with its token, the authority of its cluster, and its namespace.
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
#: Seconds after which a token is read from its file again: the kubelet replaces it in time.
_TOKEN_AGE = 60.0
#: Bytes that such a file may have.
_MOST_TOKEN = 1 << 16
#: Seconds before they expire that credentials are renewed; and for which they are used at least,
#: whatever the clocks of both sides say.
_RENEWAL, _LEAST_USE = 30.0, 10.0
#: What a header can have, and a token that has something else.
_HEADER = re.compile(r"[\x20-\x7e]*")
#: What the name of a header can have beside letters, digits and `-._~`; but for `%`, which begins
#: what it cannot have.
_IN_NAME = "!#$&'*+^`|"
_NO_HEADER = "has characters that no header can have"
_NO_TOKEN = f"gives a token that {_NO_HEADER}"


class Access(Struct, frozen=True):
    """How the API server is reached."""

    #: Without a slash at its end.
    url: str
    #: A name may be there several times.
    headers: Sequence[tuple[str, str]] = ()
    #: None for http.
    ssl: ssl.SSLContext | None = None
    #: The name in its certificate, if it is not that in the URL.
    server_name: str | None = None
    #: The URL of a proxy.
    proxy: str | None = None

    @property
    def proxy_headers(self) -> dict[str, str]:
        """See `proxies.proxy_headers`."""
        return proxies.proxy_headers(self.proxy)


class Credentials:
    """A configuration as it was read. May be used by several threads.

    found: where they lead to; its uid is not known. authorization: returns the header of this name
    as it is valid now, "" without one, and may raise CannotCall. headers: the others. expires:
    epoch seconds.
    """

    def __init__(
        self,
        found: ClusterRef,
        *,
        authorization: Callable[[], str],
        ssl_context: ssl.SSLContext | None,
        headers: Sequence[tuple[str, str]] = (),
        server_name: str | None = None,
        proxy: str | None = None,
        expires: float = math.inf,
    ) -> None:
        self.found = found
        self._authorization, self._headers = authorization, headers
        self._ssl, self._server_name, self._proxy = ssl_context, server_name, proxy
        self._renewal = max(expires - _RENEWAL, time.time() + _LEAST_USE)

    @property
    def is_expired(self) -> bool:
        """Whether the configuration is to be read again, for new ones."""
        return time.time() >= self._renewal

    def access(self) -> Access:
        """With a token that is valid now, as far as its expiry is known. Raises CannotCall."""
        headers = [("User-Agent", "muster"), *self._headers]
        if header := self._authorization():
            headers.append(("authorization", header))
        return Access(self.found.server, headers, self._ssl, self._server_name, self._proxy)


def load(profile: KubernetesProfile, environ: Mapping[str, str]) -> Credentials:
    """Read the configuration of a profile. environ: see the module. Raises CannotCall."""
    _check_installed()
    files = _files_of(profile, environ)
    return _of_pod(profile) if files is None else _of_file(files, profile, environ)


def why_no_cluster(profile: KubernetesProfile, environ: Mapping[str, str]) -> str:
    """Why the configuration of a profile leads to no cluster, without a look at its credentials,
    which may be renewed; "" if it does. environ: see the module."""
    try:
        files = _files_of(profile, environ)
        if files is not None:
            _way(profile, read_context(files, profile.context).cluster)
    except CannotCall as error:
        return str(error)
    return ""


def ways_to(
    ref: ClusterRef, profile: KubernetesProfile, environ: Mapping[str, str]
) -> list[Callable[[], Credentials]]:
    """How the cluster of a run may be reached: as it was when it was recorded, and with the
    configuration of now, such as after its file was moved. Each raises CannotCall. Whether they
    lead to that cluster is not known."""
    _check_installed()
    profile = replace(profile, namespace=ref.namespace)
    now = _named_files(profile, {})
    is_there = _is_there(now)
    if not ref.kubeconfig:
        here = [partial(_of_file, now, profile, environ)]
        return [partial(_of_pod, profile), *(here if is_there else [])]
    profile = replace(profile, context=ref.context)
    files = dict.fromkeys([ref.kubeconfig, *([absolute(now)] if is_there else [])])
    return [partial(_of_file, one, profile, environ) for one in files]


def namespace_of(profile: KubernetesProfile, environ: Mapping[str, str]) -> str:
    """The namespace of a profile, as `load` finds it: without credentials. Raises CannotCall."""
    if profile.namespace is not None:
        return profile.namespace
    files = _files_of(profile, environ)
    return _own_namespace() if files is None else read_context(files, profile.context).namespace


def configuration_of(profile: KubernetesProfile, environ: Mapping[str, str]) -> Hashable:
    """What is equal as long as `load` reads the same."""
    files = _named_files(profile, environ)
    found = []
    for path in paths_of(files):
        try:
            about = path.stat()
        except OSError:
            continue
        found.append((str(path), about.st_ino, about.st_mtime_ns, about.st_size))
    variables = frozenset(environ.items())  # plug-ins get them
    return profile.context, profile.namespace, profile.contact, files, tuple(found), variables


def _files_of(profile: KubernetesProfile, environ: Mapping[str, str]) -> str | None:
    """The files of a profile's configuration; None: Muster runs in a pod of the cluster. Raises
    CannotCall if it does not either."""
    files = _named_files(profile, environ)
    if profile.kubeconfig is not None or profile.context is not None or _is_there(files):
        return files
    if _IN_CLUSTER in os.environ:
        return None
    text = f"there is no cluster: {files} is not a file, and Muster does not run in a pod"
    raise CannotCall(text, refused=True)


def _named_files(profile: KubernetesProfile, environ: Mapping[str, str]) -> str:
    """Those that count, whether they are there or not."""
    own = profile.kubeconfig or environ.get("KUBECONFIG") or os.environ.get("KUBECONFIG")
    return own or _DEFAULT_FILE


def _is_there(files: str) -> bool:
    """Whether one of them is."""
    return any(exists(path) for path in paths_of(files))


def why_not_installed() -> str:
    """Why no cluster can be called; "" if one can."""
    return "" if all(find_spec(name) is not None for name in _NEEDED) else _INSTALL


def _check_installed() -> None:
    if why := why_not_installed():
        raise CannotCall(why, refused=True)


# --- in a pod


def _of_pod(profile: KubernetesProfile) -> Credentials:
    """The service account of the pod in which Muster runs. Raises CannotCall."""
    host, port = os.environ.get(_IN_CLUSTER, ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CannotCall("Muster does not run in a pod", refused=True)
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority = _ACCOUNT / "ca.crt"
    try:
        context = _ssl_context(bounded(authority, MOST_CERTIFICATE))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no certificate"
        raise CannotCall(f"{authority} cannot be used: {why}", refused=True) from None
    return Credentials(
        ClusterRef("", "", profile.namespace or _own_namespace(), server),
        authorization=_TokenFile(_ACCOUNT / "token").authorization,
        ssl_context=context,
        proxy=proxies.proxy_of_environment(server, profile.contact),
    )


def _own_namespace() -> str:
    try:
        return (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


class _TokenFile:
    """A token in a file that is replaced before it expires. May be used by several threads."""

    def __init__(self, path: Path, instead: str = "") -> None:
        """instead: the header if there is no token in the file."""
        self._path, self._instead = path, instead
        self._found = "", -math.inf  # and when

    def authorization(self) -> str:
        """See `Credentials`."""
        header, at = self._found
        if time.monotonic() >= at + _TOKEN_AGE:
            header = self._read() or self._instead
            if not header:
                raise CannotCall(f"the token in {self._path} is empty", refused=True)
            self._found = header, time.monotonic()
        return header

    def _read(self) -> str:
        what = f"the token in {visible_line(str(self._path))}"
        try:
            text = bounded(self._path, _MOST_TOKEN).decode("ascii")
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and self._instead:
                return ""
            why = getattr(error, "strerror", None) or "it is not ASCII"
            raise CannotCall(f"{what} cannot be read: {why}", refused=True) from None
        return _bearer(text, CannotCall(f"{what} {_NO_HEADER}", refused=True))


# --- from files


def _of_file(files: str, profile: KubernetesProfile, environ: Mapping[str, str]) -> Credentials:
    """The context of a profile in files as kubectl reads them. Raises CannotCall."""
    context = read_context(files, profile.context)
    cluster, user = context.cluster, context.user
    server, proxy = _way(profile, cluster)
    headers = _impersonation(user)
    is_repeated = len(dict(headers)) < len(headers)
    if is_repeated and proxy is not None and server.startswith("http:"):
        why = "names several groups or values, which no proxy of an http:// server gets: use https"
        raise user.wrong("as", why)
    if _may_have_credentials(server):
        authorization, issued = _login(files, context, environ)
    else:
        authorization, issued = _nobody, Issued()
    namespace = profile.namespace or context.namespace
    return Credentials(
        ClusterRef(absolute(files), context.name, namespace, server),
        authorization=authorization,
        ssl_context=_secured(cluster, user, issued) if server.startswith("https:") else None,
        headers=headers,
        server_name=cluster.text("tls-server-name") or None,
        proxy=proxy,
        expires=issued.expires,
    )


def _way(profile: KubernetesProfile, cluster: Entry) -> tuple[str, str | None]:
    """The URL of the API server, and that of a proxy. Raises CannotCall."""
    server, proxy = _server(cluster), cluster.text("proxy-url")
    if not proxy:
        return server, proxies.proxy_of_environment(server, profile.contact)
    where = f"proxy-url of {cluster.owner} in {cluster.file}"
    return server, proxies.checked_proxy(proxy, where, profile.contact)


def _server(cluster: Entry) -> str:
    """The URL of the API server, with its scheme in lower case and without a slash at its end.
    Raises CannotCall."""
    server = cluster.text("server").rstrip("/")
    try:
        parts = urlsplit(server)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_url = is_url and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_url:
        raise cluster.wrong("server", "is no URL: write https://HOST:PORT")
    return parts.scheme + server[len(parts.scheme) :]


def _may_have_credentials(server: str) -> bool:
    """Whether nobody else can read what is sent there. kubectl sends none without TLS either; but
    here, tests and `kubectl proxy` may get some."""
    host = urlsplit(server).hostname or ""
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    return is_here or server.startswith("https:")


def _nobody() -> str:
    return ""


def _login(
    files: str, context: Context, environ: Mapping[str, str]
) -> tuple[Callable[[], str], Issued]:
    """The `authorization` of a context's user, as `Credentials` has it, and what a plug-in has
    issued. The first that the user has of these ways, as in kubectl. Raises CannotCall."""
    user, issued, header = context.user, Issued(), ""
    token = user.text("token")
    if token and not token.strip():
        raise user.wrong("token", "is empty")
    header = _bearer(token, user.wrong("token", _NO_HEADER))
    if path := user.path("tokenFile"):
        return _TokenFile(path, header).authorization, issued
    if header:
        return lambda: header, issued
    if name := user.text("username"):
        words = f"{name}:{user.text('password')}".encode(errors="replace")
        header = f"Basic {b64encode(words).decode()}"
    elif user.part("auth-provider") is not None:
        token = provider_token(files, context)
        header = _bearer(token, user.wrong("auth-provider", _NO_TOKEN))
    elif (plugin := user.part("exec")) is not None:
        issued = run_plugin(user, plugin, context.cluster, _for_plugin(environ))
        header = _bearer(issued.token, user.wrong("exec", _NO_TOKEN))
    return lambda: header, issued


def _impersonation(user: Entry) -> list[tuple[str, str]]:
    """The headers that say as whom a user acts. Raises CannotCall."""
    every = [("as", "User", user.text("as")), ("as-uid", "Uid", user.text("as-uid"))]
    every += [("as-groups", "Group", one) for one in user.texts("as-groups")]
    if (extra := user.part("as-user-extra")) is not None:
        for name in extra.fields:
            header = f"Extra-{quote(str(name), safe=_IN_NAME)}"
            every += [("as-user-extra", header, one) for one in extra.texts(name)]
    given = [one for one in every if one[2]]
    for field, _, value in given:
        if _HEADER.fullmatch(value) is None:
            raise user.wrong(field, _NO_HEADER)
    if given and given[0][0] != "as":
        raise user.wrong(given[0][0], "has no effect without `as`: say there as whom to act")
    return [(f"Impersonate-{header}", value) for _, header, value in given]


def _bearer(token: str, error: CannotCall) -> str:
    """The header for a token; "" for none. Raises the error if no header can have it: exceptions of
    connections would quote it."""
    token = token.strip()  # files and plug-ins may end it with a line break
    if _HEADER.fullmatch(token) is None:
        raise error
    return f"Bearer {token}" if token else ""


def _for_plugin(environ: Mapping[str, str]) -> dict[str, str]:
    """Plug-ins are also found where this process finds programs: the variables of a server's nodes
    may have another PATH."""
    paths = dict.fromkeys(one for one in (environ.get("PATH"), os.environ.get("PATH")) if one)
    return {**environ, "PATH": os.pathsep.join(paths) or os.defpath}


# --- TLS


def _secured(cluster: Entry, user: Entry, issued: Issued) -> ssl.SSLContext:
    """Raises CannotCall."""
    is_insecure = cluster.flag("insecure-skip-tls-verify")
    if is_insecure and any(cluster.text(f"certificate-authority{end}") for end in ("", "-data")):
        why = "has no meaning beside certificate-authority: leave one of them out"
        raise cluster.wrong("insecure-skip-tls-verify", why)
    try:
        context = _ssl_context(cluster.data("certificate-authority"))
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


def _ssl_context(authority: bytes | None) -> ssl.SSLContext:
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
