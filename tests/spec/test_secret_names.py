"""Which secrets a job uses that are not its own."""

from __future__ import annotations

import pytest

from muster.errors import InvalidInput
from muster.spec.override_models import RunOverrides
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve
from muster.spec.secret_names import stored_secrets

GROUP = {
    "name": "all",
    "node_env": {"A": "x ${secret.a} ${secret.own}", "B": "${rank} $${secret.text}"},
    "node_args": ["plain", "--b=${secret.b.c}${secret.a}"],
    "mounts": [{"path": "/m", "files": {"f": "${secret.d}"}}],
    "extra_containers": [
        {
            "name": "side",
            "role": "sidecar",
            "image": "x",
            "command": ["y"],
            "node_env": {"E": "${secret.e}"},
            "node_args": ["${secret.f-1}"],
            "mounts": [{"path": "/n", "files": {"f": {"base64": "${secret.g}"}}}],
        }
    ],
}


def test_where_each_is_used_first() -> None:
    spec = spec_from_mapping(
        {
            "name": "j",
            "command": ["true"],
            "secrets": {"own": "x"},
            "mounts": [{"path": "/k", "files": {"f": "${secret.own}${secret.h}"}}],
            "node_groups": [GROUP],
        }
    )
    resolve(spec, RunOverrides())
    assert stored_secrets(spec) == {
        "h": "mounts[0].files.f.text",
        "a": "node_groups[0].node_env.A",
        "b.c": "node_groups[0].node_args[1]",
        "d": "node_groups[0].mounts[0].files.f.text",
        "e": "node_groups[0].extra_containers[0].node_env.E",
        "f-1": "node_groups[0].extra_containers[0].node_args[0]",
        "g": "node_groups[0].extra_containers[0].mounts[0].files.f.base64",
    }


def test_a_variable_without_placeholders_has_no_secret() -> None:
    data = {"name": "j", "command": ["true"], "env": {"A": "${secret.a}", "B": "$${secret.a}"}}
    with pytest.raises(InvalidInput) as caught:
        resolve(spec_from_mapping(data), RunOverrides())
    (problem,) = caught.value.problems
    assert problem.path == "env.A"
    assert problem.message == "has no placeholders: ${secret.a} would stay as it is"
