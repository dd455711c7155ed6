"""What ADS's page on networks and policies says, where no other test shows it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from muster.cli.main import cli
from muster.images.builder_errors import explain_line


@pytest.mark.shows("ads-configuration/horovod-ports")
def test_horovod_may_use_any_port_of_every_node() -> None:
    rows = json.loads(CliRunner().invoke(cli, ["ports", "horovod", "--json"]).stdout)
    ranks = [row for row in rows if "between every two ranks" in row["why"]]
    assert [(row["ports"], row["on"]) for row in ranks] == [("any", "every")]


@pytest.mark.shows("ads-configuration/policy-push", "ads-configuration/policy-pull")
def test_a_refusing_registry_is_named_with_its_policies() -> None:
    said = explain_line("podman", "iad.ocir.io", ["denied: requested access is denied"])
    assert said is not None
    assert "iad.ocir.io denies access" in said[0]
    assert "pushing needs `manage repos`, pulling `read repos`" in said[0]
