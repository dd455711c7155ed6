"""Patches of pod templates, as the API server applies them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.spec.formats.jobset.own_parts import own_problems
from muster.spec.formats.jobset.patches import apply_patch, patch_problems
from muster.spec.formats.jobset.schema import template_problems

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "node",
                "image": "python",
                "command": ["python3", "-c"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
            {"name": "log", "image": "busybox"},
        ],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    },
}


def container(patch: dict[str, Any]) -> dict[str, Any]:
    patched = apply_patch(TEMPLATE, {"spec": {"containers": [{"name": "node", **patch}]}})
    first: dict[str, Any] = patched["spec"]["containers"][0]
    return first


def test_a_field_is_set() -> None:
    patched = apply_patch(TEMPLATE, {"spec": {"hostNetwork": True, "restartPolicy": "OnFailure"}})
    assert patched == {
        **TEMPLATE,
        "spec": {**TEMPLATE["spec"], "hostNetwork": True, "restartPolicy": "OnFailure"},
    }


def test_a_null_deletes_a_field() -> None:
    assert "restartPolicy" not in apply_patch(TEMPLATE, {"spec": {"restartPolicy": None}})["spec"]


def test_labels_are_added() -> None:
    patched = apply_patch(TEMPLATE, {"metadata": {"labels": {"b": "2"}}})
    assert patched["metadata"] == {"labels": {"a": "1", "b": "2"}}


def test_a_container_is_merged_by_its_name() -> None:
    patched = apply_patch(TEMPLATE, {"spec": {"containers": [{"name": "node", "tty": True}]}})
    first, second = patched["spec"]["containers"]
    assert first == {**TEMPLATE["spec"]["containers"][0], "tty": True}
    assert second == TEMPLATE["spec"]["containers"][1]


def test_a_container_is_added() -> None:
    proxy = {"name": "proxy", "image": "envoy", "env": [{"name": "X", "value": "1"}]}
    patched = apply_patch(TEMPLATE, {"spec": {"containers": [proxy]}})
    assert patched["spec"]["containers"] == [*TEMPLATE["spec"]["containers"], proxy]


def test_a_container_is_deleted() -> None:
    patch = {"spec": {"containers": [{"name": "log", "$patch": "delete"}]}}
    assert [c["name"] for c in apply_patch(TEMPLATE, patch)["spec"]["containers"]] == ["node"]


def test_variables_are_merged_by_name_and_keep_their_places() -> None:
    env = container({"env": [{"name": "A", "value": "3"}, {"name": "C", "value": "4"}]})["env"]
    assert env == [
        {"name": "A", "value": "3"},
        {"name": "B", "value": "2"},
        {"name": "C", "value": "4"},
    ]


def test_mounts_are_merged_by_path() -> None:
    one = {"name": "other", "mountPath": "/data", "readOnly": True}
    assert container({"volumeMounts": [one]})["volumeMounts"] == [one]


def test_lists_without_a_merge_key_are_replaced() -> None:
    assert container({"command": ["sh"]})["command"] == ["sh"]
    patched = apply_patch(TEMPLATE, {"spec": {"tolerations": [{"key": "spot"}]}})
    assert patched["spec"]["tolerations"] == [{"key": "spot"}]


def test_a_list_with_a_merge_key_is_replaced_on_request() -> None:
    volumes = [{"$patch": "replace"}, {"name": "x", "emptyDir": {}}]
    patched = apply_patch(TEMPLATE, {"spec": {"volumes": volumes}})
    assert patched["spec"]["volumes"] == [{"name": "x", "emptyDir": {}}]


def test_an_object_is_replaced_on_request() -> None:
    volume = {"name": "data", "emptyDir": None, "hostPath": {"path": "/d"}}
    patched = apply_patch(TEMPLATE, {"spec": {"volumes": [volume]}})
    assert patched["spec"]["volumes"] == [{"name": "data", "hostPath": {"path": "/d"}}]
    labels = {"$patch": "replace", "b": "2"}
    patched = apply_patch(TEMPLATE, {"metadata": {"labels": labels}})
    assert patched["metadata"]["labels"] == {"b": "2"}


def test_the_template_stays_as_it_was() -> None:
    before = repr(TEMPLATE)
    apply_patch(TEMPLATE, {"spec": {"containers": [{"name": "node", "env": [{"name": "Z"}]}]}})
    assert repr(TEMPLATE) == before


@pytest.mark.parametrize(
    ("patch", "path", "text"),
    [
        ([], "pod", "must be part of a pod template, not a list"),
        ({"hostNetwork": True}, "pod.hostNetwork", "is not a field of a pod template"),
        (
            {"spec": {"containers": [{"image": "x"}]}},
            "pod.spec.containers[0]",
            "has no name, by which entries of this list are merged",
        ),
        (
            {"spec": {"containers": [{"name": "node", "env": ["A=1"]}]}},
            "pod.spec.containers[0].env[0]",
            "must be a mapping, not 'A=1'",
        ),
        ({"spec": {"hostIpc": True}}, "pod.spec.hostIpc", "unknown field"),
        (
            {"spec": {"affinity": {"nodeAfinity": {}}}},
            "pod.spec.affinity.nodeAfinity",
            "unknown field",
        ),
        (
            {"spec": {"$patch": "remove"}},
            "pod.spec.$patch",
            "must be replace, delete or merge, not 'remove'",
        ),
        (
            {"spec": {"$setElementOrder/containers": []}},
            "pod.spec.$setElementOrder/containers",
            "is a directive that Muster does not apply",
        ),
    ],
)
def test_wrong_patches(patch: Any, path: str, text: str) -> None:
    (problem,) = patch_problems(patch, "pod")
    assert (problem.path, problem.message) == (path, text)


def test_fields_of_a_newer_kubernetes_may_be_patched() -> None:
    new = {"schedulingGroup": {"podGroupName": "a"}, "containers": [{"name": "x", "fresh": 1}]}
    assert [*patch_problems({"spec": new}, "pod")] == []


VALUES = st.recursive(
    st.one_of(st.integers(), st.text(max_size=5), st.booleans()),
    lambda inner: st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=6,
)


#: Anything that YAML, JSON or TOML can have.
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(("replace", "delete", "node", "muster-program", "/muster"))
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    *("metadata", "spec", "labels", "containers", "initContainers", "volumes"),
                    *("env", "volumeMounts", "ports", "name", "mountPath", "affinity"),
                    *("tolerations", "finalizers", "hostAliases", "ip", "resources", "$patch"),
                    *("$retainKeys", "args", "emptyDir", "nodeAffinity", 1, None),
                )
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=500)
@given(ANYTHING | st.fixed_dictionaries({"spec": ANYTHING}))
def test_any_patch_is_applied_or_refused_at_its_place(patch: Any) -> None:
    found = [*patch_problems(patch, "pod")]
    assert all(one.path == "pod" or one.path.startswith("pod.") for one in found)
    if not found:
        own = [*own_problems(patch, "pod")]
        assert all(one.path.startswith("pod.") for one in own)
        assert template_problems(apply_patch(TEMPLATE, patch), "") == []


@given(st.dictionaries(st.text("abc", min_size=1), VALUES, max_size=4))
def test_a_patch_of_plain_objects_is_applied_whole_and_once(patch: dict[str, Any]) -> None:
    once = apply_patch({}, {"spec": patch})
    assert once == ({"spec": patch})
    assert apply_patch(once, {"spec": patch}) == once
