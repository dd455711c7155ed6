"""What ADS's page on networks and policies says, where no other test shows it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from muster.cli.main import cli


@pytest.mark.shows("ads-configuration/horovod-ports")
def test_horovod_may_use_any_port_of_every_node() -> None:
    rows = json.loads(CliRunner().invoke(cli, ["ports", "horovod", "--json"]).stdout)
    ranks = [row for row in rows if "between every two ranks" in row["why"]]
    assert [(row["ports"], row["on"]) for row in ranks] == [("any", "every")]
