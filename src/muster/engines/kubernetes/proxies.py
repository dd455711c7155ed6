"""The proxy on the way to an API server."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import unquote
from urllib.request import getproxies

from muster.engines.kubernetes.refusals import CannotCall

_SCHEMES = "http", "https"


def checked_proxy(url: str, where: str, contact: str) -> str:
    """The URL of a proxy, with its scheme in lower case. where: where it is written, for people.
    contact: of the profile. Raises CannotCall, whose text has no password."""
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    shown = url.rpartition("@")[2][:100]
    try:
        found = parse_url(url)
        is_url = found.scheme in _SCHEMES and bool(found.host) and found.port != 0
    except LocationParseError:
        is_url = False
    if is_url and found.scheme == "https" and contact == "exec":
        text = (
            f"{where} is {shown!r}, which exec streams cannot use: name a proxy that begins with "
            'http://, or set contact = "dial"'
        )
    elif is_url:
        return found.url
    elif url.lower().startswith("socks"):
        text = f"{where} is a SOCKS proxy ({shown}), which Muster cannot use: name one of HTTP"
    else:
        text = f"{where} is {shown!r}, which is no URL of a proxy: write http://HOST:PORT"
    raise CannotCall(text, refused=True)


def proxy_of_environment(url: str, contact: str) -> str | None:
    """The proxy for a URL, from $HTTPS_PROXY and $NO_PROXY; like kubectl, not $ALL_PROXY. contact:
    see `checked_proxy`. Raises CannotCall."""
    scheme = url.partition(":")[0]
    found = getproxies().get(scheme)
    if not found:
        return None
    from requests.utils import should_bypass_proxies  # it knows networks in $NO_PROXY

    if should_bypass_proxies(url, no_proxy=None):
        return None
    # unlike kubectl's files, the variable often has a host alone
    whole = found if "://" in found else f"http://{found}"
    return checked_proxy(whole, f"{scheme.upper()}_PROXY of the environment", contact)


def place(url: str) -> str:
    """The host and the port of a proxy, without a password."""
    from urllib3.util import parse_url

    return parse_url(url).netloc or "of no host"


def proxy_headers(url: str | None) -> dict[str, str]:
    """What a proxy has to get: the name and the password of its URL, if it has any."""
    from urllib3.util import parse_url

    name, _, password = ((parse_url(url).auth if url else None) or "").partition(":")
    if not name:
        return {}
    words = f"{unquote(name)}:{unquote(password)}"
    return {"Proxy-Authorization": f"Basic {b64encode(words.encode()).decode()}"}
