"""When a cluster is reported as away, and as back."""

from __future__ import annotations

from muster.engines.kubernetes.changes import Away
from muster.engines.kubernetes.outage import Outage
from muster.engines.kubernetes.refusals import CannotCall

SILENT = CannotCall("it does not answer", refused=False)
AWAY = Away(100.0, "it does not answer")
BACK = Away(100.0, "it does not answer", is_back=True)


def test_a_short_outage_is_not_reported() -> None:
    one = Outage()
    assert one.failed("Pod", SILENT, 100.0, 101.0) is None
    assert one.works("Pod") is None


def test_an_outage_has_begun_with_the_first_call_that_failed() -> None:
    one = Outage()
    one.failed("Pod", SILENT, 100.0, 101.0)
    assert one.failed("Pod", SILENT, 104.0, 105.0) == AWAY
    assert one.failed("Pod", SILENT, 109.0, 110.0) is None, "it is known"
    assert one.reported == AWAY
    assert one.works("Pod") == BACK
    assert one.reported is None and one.works("Pod") is None


def test_a_call_that_takes_long_to_fail_is_reported_at_once() -> None:
    assert Outage().failed("Pod", SILENT, 100.0, 160.0) == AWAY


def test_a_refusal_is_reported_at_once() -> None:
    refused = CannotCall("no right", refused=True, status=403)
    assert Outage().failed("Pod", refused, 100.0, 100.0) == Away(100.0, "no right")


def test_another_reason_is_reported_with_the_same_begin() -> None:
    one = Outage()
    one.failed("Pod", SILENT, 100.0, 110.0)
    refused = CannotCall("no right", refused=True, status=403)
    assert one.failed("Pod", refused, 110.0, 110.0) == Away(100.0, "no right")


def test_it_is_back_when_all_kinds_are_read() -> None:
    one = Outage()
    one.failed("Pod", SILENT, 100.0, 110.0)
    one.failed("JobSet", SILENT, 100.0, 110.0)
    assert one.works("JobSet") is None
    assert one.works("Pod") == BACK


def test_runs_are_known_without_kueue() -> None:
    one = Outage()
    assert one.failed("Workload", SILENT, 100.0, 200.0) is None
    assert one.reported is None
