"""The SDK in the engine's own process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("oci")
VARIABLE = "OCI_PYTHON_SDK_NO_SERVICE_IMPORTS"
PROGRAM = f"""
import os, sys
from muster.engines.oci import client
sdk = client._sdk()
print(os.environ.get({VARIABLE!r}), hasattr(sdk, "data_science"))
"""


@pytest.mark.parametrize(("given", "left"), [(None, "None"), ("1", "1")])
def test_programs_that_are_started_later_have_all_services(given: str | None, left: str) -> None:
    environ = {name: text for name, text in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environ | ({} if given is None else {VARIABLE: given}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{left} False\n"
