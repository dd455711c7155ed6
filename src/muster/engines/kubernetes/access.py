"""How the API server of a profile is reached, and with which credentials: from the files that
kubectl reads, or as the service account of the pod in which Muster runs.

Which files are read, and what plug-ins find in their environment, is as whoever has submitted the
run had it. What that lacks, as on a server, is as in the environment of this process. So is the
proxy of the environment: it depends on where this process runs.
"""

from __future__ import annotations

import math
import os
import ssl
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.kubernetes import proxies, tls
from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.kubernetes.kubeconfig import (
    MOST_CERTIFICATE,
    Entry,
    absolute,
    bounded,
    exists,
    paths_of,
    read_context,
)
from muster.engines.kubernetes.plugins import Issued
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.refusals import CannotCall
from muster.engines.kubernetes.tokens import TokenFile
from muster.engines.kubernetes.user_headers import impersonation, login

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
#: Seconds before they expire that credentials are renewed; and for which they are used at least,
#: whatever the clocks of both sides say.
_RENEWAL, _LEAST_USE = 30.0, 10.0


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


def server_of(profile: KubernetesProfile, environ: Mapping[str, str]) -> str:
    """The URL of the API server of a profile, as `load` finds it: without credentials. Raises
    CannotCall."""
    files = _files_of(profile, environ)
    return (
        _server_of_pod() if files is None else _server(read_context(files, profile.context).cluster)
    )


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
    server = _server_of_pod()
    authority = _ACCOUNT / "ca.crt"
    try:
        context = tls.trusting(bounded(authority, MOST_CERTIFICATE))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no certificate"
        raise CannotCall(f"{authority} cannot be used: {why}", refused=True) from None
    return Credentials(
        ClusterRef("", "", profile.namespace or _own_namespace(), server),
        authorization=TokenFile(_ACCOUNT / "token").authorization,
        ssl_context=context,
        proxy=proxies.proxy_of_environment(server, profile.contact),
    )


def _server_of_pod() -> str:
    """Raises CannotCall."""
    host, port = os.environ.get(_IN_CLUSTER, ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CannotCall("Muster does not run in a pod", refused=True)
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _own_namespace() -> str:
    try:
        return (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


# --- from files


def _of_file(files: str, profile: KubernetesProfile, environ: Mapping[str, str]) -> Credentials:
    """The context of a profile in files as kubectl reads them. Raises CannotCall."""
    context = read_context(files, profile.context)
    cluster, user = context.cluster, context.user
    server, proxy = _way(profile, cluster)
    headers = impersonation(user)
    is_repeated = len(dict(headers)) < len(headers)
    if is_repeated and proxy is not None and server.startswith("http:"):
        why = "names several groups or values, which no proxy of an http:// server gets: use https"
        raise user.wrong("as", why)
    if _may_have_credentials(server):
        authorization, issued = login(files, context, environ)
    else:
        authorization, issued = _nobody, Issued()
    namespace = profile.namespace or context.namespace
    return Credentials(
        ClusterRef(absolute(files), context.name, namespace, server),
        authorization=authorization,
        ssl_context=tls.context_for(cluster, user, issued) if server.startswith("https:") else None,
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
