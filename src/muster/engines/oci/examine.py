"""What an engine `oci` finds, for `muster engines check`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from muster.engines.findings import Finding
from muster.engines.oci.bucket import Bucket
from muster.engines.oci.client import Service
from muster.engines.oci.listen import listen_address
from muster.engines.oci.profile import OciProfile
from muster.engines.oci.refusals import CannotRun
from muster.node.tunnel import Unavailable
from muster.node.tunnel_process import LinkedObjects

#: Seconds by which clocks may differ: the service refuses requests that are older.
_MOST_SKEW = 300.0
_NAMED_SHAPES = 6
#: How long a pre-authenticated request of a check is valid, if it cannot be deleted.
_CHECK_LINK = timedelta(minutes=5)


def examine(profile: OciProfile) -> list[Finding]:
    """Findings about the service, as far as it can be reached, and about this machine."""
    found = [*_of_service(Service(profile), profile)]
    return found if profile.place is not None else [*found, _address(profile)]


def _of_service(service: Service, profile: OciProfile) -> Iterator[Finding]:
    try:
        skew = _skew(service.clock())
    except CannotRun as error:
        yield Finding("service", False, str(error), _advice(error, profile))
        return
    where = profile.endpoint or f"region {profile.region or 'of the configuration'}"
    yield Finding("service", True, f"{where} answers, and accepts the credentials")
    if skew is not None:
        advice = "" if skew < _MOST_SKEW / 2 else "set this machine's clock, as with NTP"
        text = f"differs by {skew:.0f} s from that of the service"
        yield Finding("clock", not advice, text, advice)
    yield _found("project", lambda: f"{service.project_name()} is in the service", profile)
    yield _found(
        "job runs", lambda: f"{service.count_runs()} in progress in the compartment", profile
    )
    yield _shapes(service, profile)
    if (group := profile.log_group) is not None:
        yield _found("log group", lambda: f"{service.log_group_name(group)} has the logs", profile)
    else:
        text = "none: what nodes print before they reach this machine is not kept"
        yield Finding("log group", True, text)
    if profile.place is not None:
        yield _bucket(Bucket(service, profile.place), profile)


def _found(name: str, look: Callable[[], str], profile: OciProfile) -> Finding:
    try:
        return Finding(name, True, look())
    except CannotRun as error:
        return Finding(name, False, str(error), _advice(error, profile))


def _shapes(service: Service, profile: OciProfile) -> Finding:
    try:
        known = service.shapes()
    except CannotRun as error:
        return Finding("shape", False, str(error), _advice(error, profile))
    if profile.shape in known:
        return Finding("shape", True, f"{profile.shape} is one of {len(known)} in the compartment")
    some = ", ".join(sorted(known)[:_NAMED_SHAPES]) or "none"
    more = ", ..." if len(known) > _NAMED_SHAPES else ""
    text = f"the service has no {profile.shape} for jobs"
    return Finding("shape", False, text, f"set `shape` to one that it has: {some}{more}")


def _address(profile: OciProfile) -> Finding:
    if (address := listen_address(profile)) is None:
        advice = "set `address` to one that nodes reach, or `bucket` to a bucket for messages"
        return Finding("address", False, "nodes do not know this machine's address", advice)
    first, last = profile.ports or (0, 0)
    ports = "any port" if not first else f"ports {first} to {last}"
    return Finding("address", True, f"nodes dial {address}, {ports}")


def _bucket(bucket: Bucket, profile: OciProfile) -> Finding:
    """Whether messages can go through the bucket, by what a run does there."""
    name = f"{bucket.place.prefix}muster/check-{os.urandom(8).hex()}"
    begun = time.monotonic()
    try:
        link = bucket.link(name, f"{name}/", datetime.now(UTC) + _CHECK_LINK)
        objects = LinkedObjects(link)
        try:
            objects.put(f"{name}/part", b"check")
            read = bucket.get(f"{name}/part")
        finally:
            objects.close()
            bucket.clear(f"{name}/")
            bucket.end_links(name, f"{name}/")
    except CannotRun as error:
        return Finding("bucket", False, str(error), _advice(error, profile))
    except Unavailable as error:
        advice = "check that the bucket's service can be reached from here without credentials"
        return Finding("bucket", False, str(error), advice)
    if read != b"check":
        return Finding("bucket", False, "what was written there is not found")
    took = time.monotonic() - begun
    text = f"{bucket.place.bucket} carries messages of nodes; six calls took {took:.1f} s"
    return Finding("bucket", True, text)


def _skew(date: str) -> float | None:
    """Seconds between the clocks; None if the service does not say what time it is."""
    try:
        return abs(parsedate_to_datetime(date).timestamp() - time.time())
    except ValueError:
        return None


def _advice(error: CannotRun, profile: OciProfile) -> str:
    if error.status is None and not error.refused:
        where = profile.endpoint or "the region's end points"
        return f"check that {where} can be reached from here, and proxies (HTTPS_PROXY)"
    if error.status is None:
        where = f"{profile.config}, profile {profile.config_profile}"
        return f"check {where} (`oci setup config`), or set `config_profile` to another profile"
    if error.status == 404:
        return "check the OCIDs in the profile, and the policies of their compartment"
    return "check the credentials"
