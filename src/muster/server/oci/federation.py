"""Tokens for instances (OCI: POST /v1/x509 of the Auth service, as `X509FederationClient` asks),
and renewed certificates, which `muster server instance metadata` asks for."""

from __future__ import annotations

import time
from collections.abc import Callable

from muster.errors import NotFound
from muster.iam import instance_tokens
from muster.iam.instance_tokens import RENEWAL, Certified
from muster.iam.signatures import SignatureRefused, parse_authorization
from muster.server.answers import Answer, encoded
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.model import Wire
from muster.spec.ocids import TENANCY
from muster.storage import instances
from muster.storage.token_seed import signed_tokens

#: Bytes of a request: a certificate and a key.
_MOST_BODY = 1 << 16


class FederationRequest(Wire, frozen=True, kw_only=True):
    """What a client sends."""

    certificate: str
    public_key: str
    intermediate_certificates: tuple[str, ...] = ()
    purpose: str | None = None


class RenewalRequest(Wire, frozen=True, kw_only=True):
    """What a host sends whose certificate is to be renewed."""

    certificate: str


async def exchange(request: OciRequest) -> Answer:
    """POST /v1/x509"""
    return await _answered(request, _exchange)


async def renew(request: OciRequest) -> Answer:
    """POST /v1/x509/certificate: a certificate for the same key."""
    return await _answered(request, _renew)


async def _answered(
    request: OciRequest, answer: Callable[[OciRequest, float], dict[str, str]]
) -> Answer:
    request.body = await request.call.body(_MOST_BODY)

    def encode() -> Answer:
        try:
            return Answer(encoded(answer(request, time.time())))
        except NotFound as error:  # it was removed meanwhile
            raise SignatureRefused(str(error)) from None

    return await request.state.in_thread(encode)


def _exchange(request: OciRequest, now: float) -> dict[str, str]:
    given, home = request.read(FederationRequest), request.state.backend.home
    certified = _certified(request, "/v1/x509", given.certificate, now)
    session = instance_tokens.public_key(given.public_key)
    instances.note_use(home, certified.instance.name, certified.serial, now)
    tokens, tenancy = signed_tokens(home), _tenancy(request)
    return {"token": instance_tokens.issue(tokens, certified, session, tenancy, now)}


def _renew(request: OciRequest, now: float) -> dict[str, str]:
    given, home = request.read(RenewalRequest), request.state.backend.home
    certified = _certified(request, RENEWAL, given.certificate, now)
    own = (certified.instance.name, certified.serial, certified.key)
    return {"certificate": instances.renew(home, *own, _tenancy(request), now).decode()}


def _certified(request: OciRequest, target: str, certificate: str, now: float) -> Certified:
    """The host that has signed a request with its certificate. Raises SignatureRefused."""
    call, home = request.call, request.state.backend.home
    sent = call.raw_headers
    certified = instance_tokens.verify_certificate(home, certificate, call.address, now)
    header = next((v.decode("latin-1") for k, v in sent if k == b"authorization"), "")
    signature = parse_authorization(header)
    instance_tokens.check_request(signature, certified, target, sent, request.body or b"", now)
    return certified


def _tenancy(request: OciRequest) -> str:
    return request.state.compartments.tenancy or TENANCY


ROUTES = (
    OciRoute("get_federation_token", "POST", "/v1/x509", stream=exchange, public=True),
    OciRoute("renew_certificate", "POST", RENEWAL, stream=renew, public=True),
)
