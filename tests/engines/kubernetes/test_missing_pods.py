"""Why pods are not created, from events of the Job controller."""

from __future__ import annotations

from typing import Any

from muster.engines.kubernetes.missing_pods import why_not_created

QUOTA = (
    'Error creating: pods "demo-0-1-xj4tz" is forbidden: exceeded quota: team, requested: pods=1, '
    "used: pods=4, limited: pods=4"
)
WEBHOOK = (
    'Error creating: admission webhook "policy.example.com" denied the request: images must come '
    "from registry.example.com"
)


def event(message: str, last: str = "2026-02-03T04:05:06Z", **more: Any) -> dict[str, Any]:
    return {"reason": "FailedCreate", "message": message, "lastTimestamp": last, **more}


def test_a_quota_is_named() -> None:
    assert why_not_created([event(QUOTA)], "research") == (
        "its pod cannot be created: quota team of namespace research does not allow it: pods=1 "
        "requested, pods=4 used, the limit is pods=4"
    )


def test_a_webhook_is_named() -> None:
    assert why_not_created([event(WEBHOOK)], "research") == (
        "its pod cannot be created: policy.example.com: images must come from registry.example.com"
    )


def test_the_last_event_counts() -> None:
    newer = event("Error creating: it is too late", "2026-02-03T04:05:07Z")
    series = event(WEBHOOK, "", series={"lastObservedTime": "2026-02-03T04:05:08Z"})
    assert why_not_created([newer, event(QUOTA)], "a").endswith("it is too late")
    assert "policy.example.com" in why_not_created([series, newer], "a")


def test_nothing_is_made_up() -> None:
    assert why_not_created([], "a") == ""
    assert why_not_created([event("")], "a") == ""
