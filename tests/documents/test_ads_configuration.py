"""What ADS's page on networks and policies says, where no other test shows it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from muster.cli.main import cli
from muster.images.trouble import plain_words


@pytest.mark.shows("ads-configuration/horovod-ports")
def test_horovod_may_use_any_port_of_every_node() -> None:
    rows = json.loads(CliRunner().invoke(cli, ["ports", "horovod", "--json"]).stdout)
    ranks = [row for row in rows if "between every two ranks" in row["why"]]
    assert [(row["ports"], row["on"]) for row in ranks] == [("any", "every")]


@pytest.mark.shows("ads-configuration/policy-push", "ads-configuration/policy-pull")
def test_a_registry_that_refuses_is_told_with_its_policies() -> None:
    said = plain_words("podman", "iad.ocir.io", ["denied: requested access is denied"])
    assert said is not None
    assert "iad.ocir.io refuses" in said[0]
    assert "pushing takes `manage repos`, pulling `read repos`" in said[0]
