"""A setting is declared once, in the model; everything else follows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import click

import muster
from muster.cli.run import run
from muster.cli.runs import resume
from muster.lifecycle.policy import GroupPolicy, Policy
from muster.plan.model import GroupPlan, RunPlan
from muster.spec.generate import TARGET, override_models
from muster.spec.override_models import FLAGS, GROUP_SETTINGS, RUN_WIDE, RUN_WIDE_RECORDS

#: Settings that the plan has in another form.
CONVERTED = ("startup", "suspend", *RUN_WIDE_RECORDS)
CONVERTED_OF_GROUP = ("max_replicas", "shape")


def test_overrides_are_current() -> None:
    assert TARGET.read_text() == override_models(), "run `make docs`"


def test_every_setting_reaches_the_plan() -> None:
    fields = {*RunPlan.__struct_fields__, *Policy.__struct_fields__}
    assert [name for name in RUN_WIDE if name not in (*fields, *CONVERTED)] == []


def test_every_setting_of_a_group_reaches_the_plan() -> None:
    fields = {*GroupPlan.__struct_fields__, *GroupPolicy.__struct_fields__}
    assert [name for name in GROUP_SETTINGS if name not in (*fields, *CONVERTED_OF_GROUP)] == []
    records = {"resources", "mounts", "startup_probe", "depends_on"}
    assert not records.intersection(GROUP_SETTINGS)


def test_each_flag_is_an_option_and_no_other_setting_is() -> None:
    options = {p.name for p in run.params if isinstance(p, click.Option)}
    assert {*FLAGS} <= options
    assert [name for name in RUN_WIDE if name in options and name not in FLAGS] == []
    assert {p.name for p in resume.params if p.name in RUN_WIDE} <= {*FLAGS}


#: All that declares a new setting of the run and one of a group, and gives the latter to the nodes,
#: without the code that uses it: file -> the line it is put in front of, and the new text.
DECLARED = {
    "spec/models.py": {
        "    keep_attempts: ": '''    dummy_timeout: RunWide[Limit | None] = None
    """A dummy."""
''',
        "    hostname: GroupOnly": '''    dummy_limit: GroupOnly[Limit | None] = None
    """A dummy."""
''',
    },
    "plan/model.py": {
        "    #: Run in place of the artifact's entry point.": (
            "    dummy_limit: float | None = None\n"
        )
    },
    "node/launch_message.py": {
        "    #: Seconds between SIGTERM and SIGKILL.\n    grace_period": (
            "    dummy_limit: float | None\n"
        )
    },
}
USES = """
import json
from pathlib import Path
from muster.describe.settings import value_text
from muster.engines.base import RunContext
from muster.engines.launch import NodePaths, NodeStart, launch_message
from muster.engines.logs import NodeOutputs
from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.environment import EngineValues
from muster.plan.model import ResourcePlan
from muster.spec.formats.jobset.write import write_jobset
from muster.spec.override_flags import overrides_from_flags
from muster.spec.override_models import RunOverrides
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve
from muster.spec.schema import json_schema, reference_markdown
from muster.storage.home import Home

group = {"name": "g", "dummy_limit": "3m"}
job = spec_from_mapping(
    {"name": "a", "command": "x", "image": "i", "dummy_timeout": "1m", "node_groups": [group]}
)
overrides = overrides_from_flags(sets=["dummy_timeout=2m", "node_groups.g.dummy_limit=4m"])
made, plain = resolve(job, overrides), resolve(job, RunOverrides())
plan = build_plan(
    arrange(made.spec),
    Identity("r1", "a-1", "j1", "a"),
    artifact=None,
    addresses=lambda network, nodes: ["127.5.0.1"],
    source_kind=lambda source: "directory",
    shape_of=lambda name: ResourcePlan(shape=name),
)
here = Path("/n")
paths = NodePaths(here, here, here, NodeOutputs((("o", "e"),), here, "g-0"), here, here)
ports = {"master": 4711, "main": 4712}
start = NodeStart(0, 0, ports, EngineValues(token="", gpus=""), cpus=1, memory=1, contained=True)
context = RunContext(plan, Home(here), {}, "/py/python")
print(json.dumps({
    "values": [plain.spec.dummy_timeout, made.spec.dummy_timeout],
    "origins": [r.origins["dummy_timeout"] for r in (plain, made)],
    "text": value_text("dummy_timeout", made.spec.dummy_timeout),
    "schema": json_schema()["$defs"]["JobSpec"]["properties"]["dummy_timeout"]["description"],
    "page": "| `dummy_timeout` | duration |  | replaces | A dummy. |" in reference_markdown(),
    "of the group": [resolved.spec.node_groups[0].dummy_limit for resolved in (plain, made)],
    "plan": plan.groups[0].dummy_limit,
    "message": launch_message(context, plan.nodes[0], paths, start).dummy_limit,
    "lost": [str(loss) for loss in write_jobset(job).losses if "dummy" in loss.path],
}))
"""


def test_a_new_setting_needs_one_declaration(tmp_path: Path) -> None:
    """A field of the model can be given in files and with --set, is merged, explained and
    documented, and `muster convert` reports that a JobSet has no such setting. One of a group also
    reaches the fields of its name in the plan and the launch message."""
    root = Path(muster.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    copy = Path(shutil.copytree(root, tmp_path / "muster", ignore=ignored))
    for file, lines in DECLARED.items():
        text = (copy / file).read_text()
        for line, new in lines.items():
            before, after = text.split(line)
            text = f"{before}{new}{line}{after}"
        (copy / file).write_text(text)

    def python(*words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    python("-m", "muster.spec.generate")
    assert json.loads(python("-c", USES)) == {
        "values": [60.0, 120.0],
        "origins": ["job", "override"],
        "text": "2m",
        "schema": "A dummy.",
        "page": True,
        "of the group": [180.0, 240.0],
        "plan": 240.0,
        "message": 240.0,
        "lost": [
            "dummy_timeout: a JobSet has no such setting",
            "node_groups[g].dummy_limit: a JobSet has no such setting",
        ],
    }
