"""What is wrong with the file of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.server.settings import read_file


def test_everything_that_is_wrong_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        'burst = 0\npython = "/nowhere"\n[oci]\nsubnet = "x"\nendpoint = "10.0.0.5:8431"\n'
    )
    with pytest.raises(InvalidInput) as refused:
        read_file(file)
    places = [str(problem).split(": ")[:2] for problem in refused.value.problems]
    assert places == [
        [f"{file}:2", "python"],
        [f"{file}:1", "burst"],
        [f"{file}:4", "oci.subnet"],
        [f"{file}:5", "oci.endpoint"],
    ]
    endpoint = str(refused.value.problems[-1])
    assert "'10.0.0.5:8431' is not the URL of a server" in endpoint
    assert "http://10.0.0.5:8431" in endpoint
