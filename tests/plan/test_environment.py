"""Layers of environment variables: which one decides, and which are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.describe.environment import describe_values, explained_environment, overridden
from muster.plan.environment import (
    Environment,
    Layer,
    Origin,
    ProcessValues,
    Setting,
    environments,
    inherited,
)
from muster.plan.model import PrincipalPlan, RunPlan

PlanOf = Callable[..., RunPlan]

names = st.sampled_from(["A", "B", "C"])
layers_of_any = st.lists(
    st.builds(Layer, st.sampled_from(Origin), st.dictionaries(names, st.text(max_size=3)))
)


@given(layers_of_any)
def test_the_highest_layer_decides(layers: list[Layer]) -> None:
    env = Environment(layers)
    assert env.values.keys() == {name for layer in layers for name in layer.variables}
    for name, value in env.values.items():
        having = [layer for layer in layers if name in layer.variables]
        setting = env.setting(name)
        assert setting.value == value == having[-1].variables[name]
        assert setting.origin is having[-1].origin
        assert setting.overridden == tuple(layer.origin for layer in having[:-1])


@pytest.mark.parametrize(
    ("below", "value", "origin"),
    [
        ({"P": "/mine"}, "/mine:/last", Origin.ENV),
        ({"P": ""}, "/last", Origin.ENGINE),
        ({}, "/last", Origin.ENGINE),
    ],
)
def test_a_search_path_is_extended(below: dict[str, str], value: str, origin: Origin) -> None:
    extended = Layer(Origin.ENGINE, {}, appended={"P": "/last"})
    env = Environment([Layer(Origin.ENV, below), extended])
    setting = env.setting("P")
    assert (setting.value, setting.origin) == (value, origin)
    assert env.values == {"P": value}


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("PYTHONUNBUFFERED", Origin.DEFAULT),
        ("HOME", Origin.INHERITED),
        ("HOSTNAME", Origin.NODE),
        ("PATH", Origin.NODE),
        ("TORCHELASTIC_ERROR_FILE", Origin.NODE),
        ("OMP_NUM_THREADS", Origin.FRAMEWORK_DEFAULT),
        ("NODE_RANK", Origin.MUSTER),
        ("MUSTER_TOKEN", Origin.MUSTER),
        ("TMPDIR", Origin.ENGINE),
        ("RANK", Origin.FRAMEWORK),
    ],
)
@pytest.mark.parametrize("layer", [Origin.ENV, Origin.NODE_ENV])
def test_the_job_overrides_only_lower_layers(
    plan_of: PlanOf, name: str, origin: Origin, layer: Origin
) -> None:
    """The job's values take precedence over those of lower layers, and over no others."""
    without = setting_of(plan_of, name, {})
    assert without.origin is origin
    setting = setting_of(plan_of, name, {layer.value: {name: "mine"}})
    order = list(Origin)
    wins = order.index(layer) > order.index(origin)
    assert setting.origin is (layer if wins else origin)
    assert setting.value == ("mine" if wins else without.value)
    assert (origin if wins else layer) in setting.overridden


def test_the_layers_are_in_the_order_of_their_origins(plan_of: PlanOf) -> None:
    plan = pytorch(plan_of, {})
    values = describe_values(plan, plan.groups[0])
    process = ProcessValues(str, error_file="(a file)")
    (env,) = environments(plan, plan.nodes[0], values, [process])
    assert [layer.origin for layer in env.layers] == list(Origin)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        *(("PATH", True), ("HOME", True), ("LANG", True), ("TZ", True), ("JAVA_HOME", True)),
        *(("LC_ALL", True), ("LC_CTYPE", True), ("LC_TIME", True)),
        *(("LC", False), ("MY_LC_ALL", False), ("SECRET", False), ("PYTHONPATH", False)),
    ],
)
def test_clean_env_keeps_search_paths_and_the_language(
    plan_of: PlanOf, name: str, kept: bool
) -> None:
    plan = pytorch(plan_of, {})
    assert inherited(plan, {name: "x"}) == {name: "x"}
    assert inherited(replace(plan, clean_env=True), {name: "x"}) == ({name: "x"} if kept else {})


def setting_of(plan_of: PlanOf, name: str, group: dict[str, Any]) -> Setting:
    plan = pytorch(plan_of, group)
    environ = {"HOME": "/home/me", "TMPDIR": "/submitter"}
    values = replace(describe_values(plan, plan.groups[0]), environ=environ)
    process = ProcessValues(str, error_file="(a file)")
    (env,) = environments(plan, plan.nodes[0], values, [process])
    return env.setting(name)


def pytorch(plan_of: PlanOf, group: dict[str, Any]) -> RunPlan:
    groups = [{"name": "g", "command": "x", **group}]
    return plan_of({"framework": "pytorch", "node_groups": groups})


def test_variables_that_muster_follows_are_not_reported_as_overridden(plan_of: PlanOf) -> None:
    env = {"JOB_RUN_ENTRYPOINT": "a.py", "MASTER_PORT": "4711", "NODE_RANK": "7", "A": "b"}
    plan = pytorch(plan_of, {"env": env})
    assert set(overridden(plan, plan.groups[0])) == {"NODE_RANK"}
    explained = explained_environment(plan, plan.groups[0], str)
    assert list(explained)[:4] == list(env), "in the order of the job"


PRINCIPAL = PrincipalPlan("tenancy", "compartment", "muster.invalid", "http://127.0.0.1:8431")


def environment_of(plan: RunPlan) -> Environment:
    values = describe_values(plan, plan.groups[0])
    (env,) = environments(plan, plan.nodes[0], values, [ProcessValues(lambda text: text)])
    return env


def test_only_runs_of_a_server_have_credentials(plan_of: PlanOf) -> None:
    plan = plan_of({"command": "true"})
    assert not any("PRINCIPAL" in name for name in environment_of(plan).values)
    env = environment_of(replace(plan, principal=PRINCIPAL)).values
    folder = "(the folder of the run's credentials)"
    assert env["OCI_RESOURCE_PRINCIPAL_RPST"] == f"{folder}/0/rpst"
    assert (env["TENANCY_OCID"], env["JOB_RUN_COMPARTMENT_OCID"]) == ("tenancy", "compartment")
    assert env["OCI_CLI_AUTH"] == "resource_principal"


def test_a_job_chooses_how_its_clients_sign_but_not_who_it_is(plan_of: PlanOf) -> None:
    given = {"OCI_CLI_AUTH": "api_key", "OCI_RESOURCE_PRINCIPAL_RPST": "/x"}
    env = environment_of(
        replace(plan_of({"command": "true", "env": given}), principal=PRINCIPAL)
    ).values
    assert env["OCI_CLI_AUTH"] == "api_key"
    assert env["OCI_RESOURCE_PRINCIPAL_RPST"] != "/x"


def test_a_clean_environment_has_no_credentials(plan_of: PlanOf) -> None:
    env = environment_of(
        replace(plan_of({"command": "true"}), clean_env=True, principal=PRINCIPAL)
    ).values
    assert not [name for name in env if name.startswith("OCI_") or name == "FSSPEC_OCI"]
