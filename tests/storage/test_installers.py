"""The reason that an installer gives for its failure. The outputs are those of real programs."""

from __future__ import annotations

import pytest

from muster.node.installation import reason_in

PIP_MISSING = """\
Looking in indexes: https://pypi.org/simple
ERROR: Could not find a version that satisfies the requirement demo==3 (from versions: 1.0, 2.0)
ERROR: No matching distribution found for demo==3
"""
PIP_CONFLICT = """\
ERROR: Cannot install idna==1.0 and requests==2.31.0 because these package versions have \
conflicting dependencies.
The conflict is caused by:
    The user requested idna==1.0
    requests 2.31.0 depends on idna<4 and >=2.5
To fix this you could try to:
1. loosen the range of package versions you've specified
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/
"""
PIP_BUILD = """\
error: subprocess-exited-with-error
\N{MULTIPLICATION SIGN} Getting requirements to build wheel did not run successfully.
│ exit code: 1
╰─> See above for output.
note: This error originates from a subprocess, and is likely not a problem with pip.
"""
UV = """\
error: No solution found when resolving dependencies
  cause: Because requests==2.31.0 depends on idna>=2.5,<4, we can conclude that
         you require idna>=2.5,<4.
         And because you require idna==1.0, your requirements are unsatisfiable.
"""
UV_BEFORE = """\
  \N{MULTIPLICATION SIGN} No solution found when resolving dependencies:
  ╰─▶ Because demo was not found in the package registry and you require
      demo, we can conclude that your requirements are unsatisfiable.
"""
CONDA = """\
Collecting package metadata: done
ResolvePackageNotFound: demo=3
"""


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (PIP_MISSING, "No matching distribution found for demo==3"),
        (
            PIP_CONFLICT,
            "Cannot install idna==1.0 and requests==2.31.0 because these package versions have "
            "conflicting dependencies.",
        ),
        (PIP_BUILD, "Getting requirements to build wheel did not run successfully."),
        (
            UV,
            "Because requests==2.31.0 depends on idna>=2.5,<4, we can conclude that you require "
            "idna>=2.5,<4. And because you require idna==1.0, your requirements are unsatisfiable.",
        ),
        (
            UV_BEFORE,
            "Because demo was not found in the package registry and you require demo, we can "
            "conclude that your requirements are unsatisfiable.",
        ),
        (CONDA, "ResolvePackageNotFound: demo=3"),
        ("", "it printed nothing"),
    ],
)
def test_the_reason_is_found_in_the_last_lines(output: str, reason: str) -> None:
    assert reason_in(output.splitlines()) == reason
