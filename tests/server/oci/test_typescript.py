"""OCI's SDK for TypeScript runs a job here. It is installed with npm, of which this needs the
registry."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from muster.caller import Role
from support.oci_config import write_config
from support.oci_teams import VISION, OciTeams, config_of

PROGRAM = Path(__file__).parent / "typescript" / "jobs.mjs"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("npm") and shutil.which("node")), reason="needs npm"),
]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the SDK."""
    folder = tmp_path_factory.mktemp("npm")
    install = ["npm", "install", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", folder]
    packages = ["oci-common", "oci-datascience"]
    done = subprocess.run([*install, *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install the SDK: {done.stderr[-300:]}")
    return folder


def test_a_job_is_created_run_watched_and_deleted(
    oci: OciTeams, modules: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    write_config(config, config_of("sam"))
    oci.teams.accounts.set_member("vision", "sam", Role.MAINTAINER)  # who deletes
    command = ["node", PROGRAM, modules, oci.url, config, VISION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    details, request = seen.pop("details"), seen.pop("request")
    assert details.startswith("Job run artifact execution failed with exit code 9."), details
    assert request.startswith("ocid1.datascienceworkrequest.")
    assert seen == {
        "shape": "VM.Standard.E4.Flex",
        "disk": 50,
        "file": "attachment; filename=main.py",
        "state": "SUCCEEDED",
        "count": 2,
        "error": [404, "NotAuthorizedOrNotFound"],
        "deleted": "DELETED",
    }
