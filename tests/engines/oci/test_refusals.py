"""Answers with errors, in words."""

from __future__ import annotations

import pytest

from muster.engines.oci.refusals import refusal


@pytest.mark.parametrize(
    ("status", "code", "refused"),
    [
        (400, "InvalidParameter", True),
        (400, "LimitExceeded", False),
        (401, "NotAuthenticated", True),
        (404, "NotAuthorizedOrNotFound", True),
        (409, "Conflict", True),
        (409, "IncorrectState", False),
        (429, "TooManyRequests", False),
        (500, "InternalServerError", False),
        (501, "MethodNotImplemented", True),
        (503, "ServiceUnavailable", False),
    ],
)
def test_what_passes_is_tried_again(status: int, code: str, refused: bool) -> None:
    found = refusal("create_job", status, code, "no.", "c")
    assert found.refused is refused and found.status == status
    assert code in str(found) and "no" in str(found)


def test_a_missing_policy_is_written_out() -> None:
    text = str(refusal("create_job_run", 404, "NotAuthorizedOrNotFound", "x", "ocid1.c"))
    assert "allow group GROUP to manage data-science-job-runs" in text
    assert "in compartment id ocid1.c" in text


def test_expired_credentials_can_be_renewed() -> None:
    text = str(refusal("get_job_run", 401, "NotAuthenticated", "expired", "c"))
    assert "`oci session authenticate`" in text and "clock" in text
