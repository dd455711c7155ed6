"""Signatures of requests: what the SDK's signer makes is verified, and nothing else is."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.iam.signatures import (
    MOST_SKEW,
    Headers,
    Signature,
    SignatureRefused,
    SkewedClock,
    check_body,
    check_date,
    check_signed,
    check_value,
    parse_authorization,
    signed_text,
)
from support.keys import private_key, private_pem

oci = pytest.importorskip("oci")

#: A time, and how a client writes it.
NOW = 1_800_000_000.0
DATE = formatdate(NOW, usegmt=True)
KEY_ID = "tenancy/user/fingerprint"


def signer(key: int = 0) -> Any:
    return oci.signer.Signer(
        "tenancy", "user", "fingerprint", None, private_key_content=private_pem(key)
    )


def signed(verb: str, url: str, body: bytes | None, headers: dict[str, str]) -> Headers:
    """The headers that the SDK sends."""
    import requests

    given = {"date": DATE, **headers}
    prepared = requests.Request(verb, url, data=body, headers=given).prepare()
    signer().do_request_sign(prepared)
    return [
        (name.lower().encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
        for name, value in prepared.headers.items()
    ]


def header(headers: Headers, name: str) -> str:
    return next(value.decode("latin-1") for key, value in headers if key == name.encode())


def verify(verb: str, target: str, headers: Headers, body: bytes | None, key: int = 0) -> Signature:
    """Verify a request as the server does. Raises SignatureRefused."""
    signature = parse_authorization(header(headers, "authorization"))
    check_signed(signature.headers, with_body=body is not None)
    check_date(header(headers, "date"), NOW)
    text = signed_text(signature, verb, target, headers)
    check_value([private_key(key).public_key()], signature, text)
    if body is not None:
        check_body(header(headers, "x-content-sha256"), body)
    return signature


words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@settings(deadline=None, max_examples=60)
@given(
    verb=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH"]),
    path=st.lists(st.text(max_size=20), max_size=4),
    query=st.dictionaries(words, st.text(max_size=20), max_size=3),
    body=st.binary(max_size=100),
    others=st.dictionaries(st.sampled_from(["opc-request-id", "if-match", "range"]), words),
)
def test_what_the_sdk_signs_is_verified(
    verb: str, path: list[str], query: dict[str, str], body: bytes, others: dict[str, str]
) -> None:
    from urllib.parse import quote, urlencode

    url = "http://example.org:8431/" + "/".join(quote(part, safe="") for part in path)
    url += f"?{urlencode(query)}" if query else ""
    with_body = verb in ("POST", "PUT", "PATCH")
    data = body if with_body else None
    import requests

    prepared = requests.Request(verb, url).prepare()  # it normalizes the path
    headers = signed(verb, url, data, {"content-type": "application/json", **others})
    found = verify(verb, prepared.path_url, headers, data)
    assert found.key_id == KEY_ID
    with pytest.raises(SignatureRefused):
        verify(verb, prepared.path_url, headers, data, key=1)
    with pytest.raises(SignatureRefused):
        verify(verb, prepared.path_url + "x", headers, data)
    with pytest.raises(SignatureRefused):
        verify("GET" if verb != "GET" else "HEAD", prepared.path_url, headers, data)
    if with_body:
        with pytest.raises(SignatureRefused):
            verify(verb, prepared.path_url, headers, body + b"x")


#: A header as it should be.
VALID = (
    f'Signature algorithm="rsa-sha256",headers="date (request-target) host",keyId="{KEY_ID}",'
    f'signature="{base64.b64encode(b"x" * 256).decode()}",version="1"'
)


@given(text=st.text())
def test_any_header_is_read_or_refused(text: str) -> None:
    for given_text in (text, f"Signature {text}"):
        try:
            found = parse_authorization(given_text)
        except SignatureRefused:
            continue
        assert found.key_id
        assert found.headers


@given(at=st.integers(0, len(VALID) - 1), length=st.integers(0, 30), by=st.text(max_size=10))
def test_a_header_that_is_nearly_right_is_read_or_refused(at: int, length: int, by: str) -> None:
    changed = VALID[:at] + by + VALID[at + length :]
    try:
        found = parse_authorization(changed)
        signed_text(found, "GET", "/", [(b"date", b""), (b"host", b"x")])
    except SignatureRefused:
        return
    assert len(set(found.headers)) == len(found.headers)


@given(text=st.one_of(st.text(), st.from_regex(r"[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{1,5} .*")))
def test_any_date_is_read_or_refused(text: str) -> None:
    try:
        check_date(text, NOW)
    except SignatureRefused:
        return


@pytest.mark.parametrize(
    ("skew", "allowed"),
    [(0, True), (MOST_SKEW, True), (-MOST_SKEW, True), (MOST_SKEW + 1, False), (-301, False)],
)
def test_clocks_may_differ_by_five_minutes(skew: float, allowed: bool) -> None:
    date = formatdate(NOW - skew, usegmt=True)
    if allowed:
        check_date(date, NOW)
    else:
        with pytest.raises(SkewedClock, match="clock"):
            check_date(date, NOW)


@pytest.mark.parametrize("date", ["", "yesterday", "Sat, 99 Nov 2026 00:00:00 GMT", "0", "\0"])
def test_what_is_no_date_is_refused(date: str) -> None:
    with pytest.raises(SignatureRefused, match="not a date"):
        check_date(date, NOW)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text.replace("Signature", "Bearer"), "no signature"),
        (lambda text: text.replace('version="1"', 'version="2"'), "version"),
        (lambda text: text.replace("rsa-sha256", "hmac-sha256"), "algorithm"),
        (lambda text: text.replace(f'keyId="{KEY_ID}",', ""), "no keyId"),
        (lambda text: text.replace("date (request", "date date (request"), "lists a header twice"),
        (lambda text: f'{text},keyId="{KEY_ID}"', "has keyId twice"),
        (lambda text: text.replace("eHh4", "e!h4"), "not base64"),
        (lambda text: text + ",", None),
        (lambda text: text + ",x", "cannot be read"),
        (lambda text: text + f',a="{"x" * 20_000}"', "characters"),
    ],
)
def test_a_wrong_header_is_refused(change: Callable[[str], str], why: str | None) -> None:
    if why is None:
        assert parse_authorization(change(VALID)).key_id == KEY_ID
        return
    with pytest.raises(SignatureRefused, match=why):
        parse_authorization(change(VALID))


def test_the_order_of_headers_is_free_and_is_signed() -> None:
    headers = [(b"host", b"h"), (b"date", b"d")]
    one = Signature("k", ("host", "date", "(request-target)"), b"")
    other = Signature("k", ("date", "host", "(request-target)"), b"")
    found = signed_text(one, "GET", "/a?b", headers)
    assert found == b"host: h\ndate: d\n(request-target): get /a?b"
    assert signed_text(other, "GET", "/a?b", headers) != found


def test_a_signed_header_is_sent_once() -> None:
    signature = Signature("k", ("date", "(request-target)", "host"), b"")
    with pytest.raises(SignatureRefused, match="sent twice"):
        signed_text(signature, "GET", "/", [(b"host", b"a"), (b"host", b"a"), (b"date", b"d")])
    with pytest.raises(SignatureRefused, match="is missing"):
        signed_text(signature, "GET", "/", [(b"date", b"d")])


@pytest.mark.parametrize(
    ("names", "with_body", "missing"),
    [
        ("date (request-target) host", False, ""),
        ("x-date (request-target) host", False, ""),
        ("(request-target) host", False, "date"),
        ("date host", False, "(request-target)"),
        ("date (request-target)", False, "host"),
        ("date (request-target) host", True, "content-length, content-type, x-content-sha256"),
        (
            "date (request-target) host content-length content-type x-content-sha256",
            *(True, ""),
        ),
    ],
)
def test_headers_that_have_to_be_signed(names: str, with_body: bool, missing: str) -> None:
    if not missing:
        check_signed(names.split(), with_body=with_body)
        return
    with pytest.raises(SignatureRefused) as refused:
        check_signed(names.split(), with_body=with_body)
    assert str(refused.value) == f"not signed: {missing}"


def test_a_body_has_its_digest() -> None:
    digest = base64.b64encode(hashlib.sha256(b"body").digest()).decode()
    check_body(digest, b"body")
    for wrong in (digest[:-2], "", digest.lower()):
        with pytest.raises(SignatureRefused, match="digest"):
            check_body(wrong, b"body")
