"""What requests share: whom runs are at the server that starts them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from muster.caller import Caller
from muster.plan.model import PrincipalPlan
from muster.server.log import ServerLog
from muster.server.settings import FileSettings, OciSettings, Settings
from muster.server.state import ServerState
from muster.service.audit import Origin
from muster.service.backend import Backend
from muster.spec.ocids import NO_REGION, TENANCY, compartment_ocid
from muster.storage.home import Home

Find = Callable[..., PrincipalPlan | None]


@pytest.fixture
def principal_of(tmp_path: Path) -> Iterator[Find]:
    """The principal of runs of the project `vision`."""
    with ExitStack() as opened:

        def find(oci: OciSettings = OciSettings(), **given: Any) -> PrincipalPlan | None:  # noqa: B008
            file = FileSettings(oci=oci, separate_owners=False)
            backend = Backend(Home(tmp_path / "home"))

            def nobody(_token: str, _project: str | None) -> Caller:
                raise AssertionError

            made = ServerState(
                Settings(file=file, **given), backend, nobody, ServerLog(io.StringIO())
            )
            opened.callback(made.close)
            api = made.api(Caller("ana", "vision"), Origin("", ""), {}, may_start=True)
            return api.context.submission.principal

        yield find


def test_runs_of_a_server_without_a_domain_get_its_url(principal_of: Find) -> None:
    found = principal_of(port=8432)
    compartment = compartment_ocid("vision")
    assert found == PrincipalPlan(TENANCY, compartment, NO_REGION, "http://127.0.0.1:8432")


def test_the_url_that_nodes_reach(principal_of: Find) -> None:
    found = principal_of(OciSettings(endpoint="http://10.0.0.5:8431/"))
    assert found is not None
    assert found.endpoint == "http://10.0.0.5:8431"
    on_all = principal_of(host="0.0.0.0")
    assert on_all is not None
    assert "0.0.0.0" not in on_all.endpoint


def test_runs_of_a_server_with_a_domain_get_that(principal_of: Find, tmp_path: Path) -> None:
    folder = Home(tmp_path / "home").oci_certificate
    own = {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}
    found = principal_of(oci_domain="jobs.example.org", port=443, **own)
    assert found is not None
    assert (found.region, found.endpoint, found.own_authority) == ("jobs.example.org", "", True)
    trusted = principal_of(oci_domain="jobs.example.org", port=8443, tls_cert="/c", tls_key="/k")
    assert trusted is not None
    assert (trusted.region, trusted.own_authority) == ("jobs.example.org:8443", False)


def test_the_compartments_are_those_that_clients_know(principal_of: Find) -> None:
    theirs = {"ocid1.tenancy.oc1..t": "default", "ocid1.compartment.oc1..c": "vision"}
    found = principal_of(OciSettings(compartments=theirs))
    assert found is not None
    assert (found.tenancy, found.compartment) == tuple(theirs)


def test_runs_get_none_where_the_settings_say_so(principal_of: Find) -> None:
    assert principal_of(OciSettings(resource_principals=False)) is None
