"""Patches other than apply, as the double merges them."""

from __future__ import annotations

from typing import Any

import pytest

from support.kube.objects import ApiError
from support.kube.patches import json_patch, leaves, merge_patch, strategic_patch, write_fields

POD: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"a": "1", "b": "2"}},
    "spec": {
        "containers": [
            {"name": "node", "image": "x", "env": [{"name": "A", "value": "1"}]},
            {"name": "log", "image": "y"},
        ],
        "tolerations": [{"key": "gpu"}],
    },
}


def test_a_merge_patch_replaces_lists() -> None:
    made = merge_patch(POD, {"metadata": {"labels": {"a": None}}, "spec": {"containers": []}})
    assert made["metadata"]["labels"] == {"b": "2"}
    assert made["spec"] == {"containers": [], "tolerations": [{"key": "gpu"}]}


def test_a_strategic_patch_merges_lists_by_their_keys() -> None:
    env = [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
    containers = [{"name": "node", "env": env}, {"name": "log", "$patch": "delete"}]
    made = strategic_patch(POD, {"spec": {"containers": containers, "tolerations": []}})
    assert made["spec"] == {
        "containers": [{"name": "node", "image": "x", "env": env}],
        "tolerations": [],
    }


def test_a_json_patch() -> None:
    made = json_patch(
        POD,
        [
            {"op": "test", "path": "/metadata/name", "value": "p"},
            {"op": "add", "path": "/metadata/labels/x~1y", "value": "3"},
            {"op": "replace", "path": "/spec/containers/1/image", "value": "z"},
            {"op": "remove", "path": "/spec/tolerations"},
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "more"}},
        ],
    )
    assert made["metadata"]["labels"]["x/y"] == "3"
    assert [one["name"] for one in made["spec"]["containers"]] == ["node", "log", "more"]
    assert "tolerations" not in made["spec"]
    with pytest.raises(ApiError):
        json_patch(POD, [{"op": "test", "path": "/metadata/name", "value": "q"}])


def test_the_fields_of_a_pod() -> None:
    fields = write_fields([path for path, _ in leaves(POD)])
    assert fields["f:metadata"] == {"f:labels": {"f:a": {}, "f:b": {}}}
    node = fields["f:spec"]["f:containers"]['k:{"name":"node"}']
    assert node["f:env"]['k:{"name":"A"}'] == {".": {}, "f:name": {}, "f:value": {}}
    assert fields["f:spec"]["f:tolerations"] == {}
