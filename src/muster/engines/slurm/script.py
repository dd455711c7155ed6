"""What is submitted to Slurm. Pure: `muster explain` shows what is submitted, from the same code.

A run is one job. Groups whose nodes need the same are one component of it; other groups make it a
heterogeneous job. Each Muster node is one task of one step, on a Slurm node of its own, and serves
a slot: the tasks are numbered over all components, in the order of the slots that the script names.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.slurm.options import flags, merged, minutes, quoted
from muster.plan.model import GroupPlan, RunPlan
from muster.spec.values import MAX_RUNTIME

#: Tasks of an array: Slurm allows 1001 by default.
_MOST_TASKS = 1000
#: Seconds that a job may take longer than its run: to start, to copy outputs, and to end.
_MARGIN = 300.0
STEP = (
    "srun --kill-on-bad-exit=0 --wait=0 --no-kill --mpi=none --cpu-bind=none --input=none "
    "--output=none --error=none"
)


class Component(Struct, frozen=True):
    """Nodes of a job that need the same."""

    slots: tuple[int, ...]
    #: Options of `sbatch` for them.
    flags: tuple[str, ...]
    #: CPUs of each; None: as many as Slurm gives.
    cpus: int | None = None
    spares: int = 0


def job_name(run_id: str, number: int) -> str:
    """The name of a run's job in Slurm, by which it is found. number: of the allocation."""
    return f"muster-{run_id}.{number}"


def components(plan: RunPlan, slots: Iterable[int], defaults: Mapping[str, Any]) -> list[Component]:
    """The components of a job for these slots. defaults: options of the profile."""
    needs: dict[tuple[tuple[str, ...], int | None, int], list[int]] = {}
    for slot in sorted(slots):
        group = plan.group(plan.nodes[slot].group)
        options = merged(defaults, group.slurm)
        cpus = None if group.resources.cpus is None else math.ceil(group.resources.cpus)
        key = (tuple(_flags(plan, group, options)), cpus, options.get("spares", 0))
        needs.setdefault(key, []).append(slot)
    return [
        Component(tuple(slots), flags, cpus, spares)
        for (flags, cpus, spares), slots in needs.items()
    ]


def _flags(plan: RunPlan, group: GroupPlan, options: Mapping[str, Any]) -> list[str]:
    resources, found = group.resources, []
    if resources.cpus is not None:
        found.append(f"--cpus-per-task={math.ceil(resources.cpus)}")
    if resources.memory is not None:
        found.append(f"--mem={-(-resources.memory // 1024)}K")
    if resources.gpus and not {"gres", "gpus_per_node"} & options.keys():
        found.append(f"--gpus-per-node={resources.gpus}")
    if "time" not in options and (limit := time_limit(plan)) is not None:
        found.append(f"--time={limit}")
    return [*found, *flags(options)]


def time_limit(plan: RunPlan) -> int | None:
    """Minutes that a job may take; None: as long as its partition allows, as the job does not
    say."""
    policy = plan.policy
    if policy.max_runtime >= MAX_RUNTIME:
        return None
    saving = 0.0 if policy.checkpoint is None else policy.checkpoint.grace
    return minutes(policy.max_runtime + saving + policy.grace_period + _MARGIN)


def batches(
    plan: RunPlan, jobs: Sequence[Sequence[int]], defaults: Mapping[str, Any]
) -> list[list[Sequence[int]]]:
    """Jobs that are submitted together, as the tasks of an array: they need the same, and their
    slots follow each other. jobs: the slots of each. defaults: options of the profile."""
    found: list[list[Sequence[int]]] = []
    needs: tuple[str, Component] | None = None  # of the last one; None: it cannot be a task
    for slots in jobs:
        parts, group = components(plan, slots, defaults), plan.group(plan.nodes[slots[0]].group)
        alone = len(parts) == 1 and group.is_array
        one = (group.name, replace(parts[0], slots=())) if alone else None
        before = found[-1] if found else []
        follows = before and len(slots) == len(before[-1]) and slots[0] == before[-1][-1] + 1
        is_range = slots[-1] - slots[0] == len(slots) - 1
        if follows and is_range and one == needs is not None and len(before) < _MOST_TASKS:
            before.append(slots)
        else:
            found.append([slots])
        needs = one
    return found


def batch_script(
    name: str, run: str, folder: str, parts: Sequence[Component], tasks: int = 1
) -> str:
    """The script for `sbatch`. name: of the job. run: the run's name. folder: the run's, which
    nodes share. parts: those of the job, or of the first task of an array. tasks: how many it
    has."""
    number = name.rpartition(".")[2]
    is_array = tasks > 1
    lines = ["#!/bin/sh"]
    for index, part in enumerate(parts):
        if index:
            lines.append("#SBATCH hetjob")
        else:
            common = [f"--job-name={name}", f"--comment=Muster run {run}"]
            common += [
                f"--output={folder}/job-{number}{'_%a' if is_array else ''}.log",
                "--open-mode=append",
                "--no-requeue",
                *([f"--array=0-{tasks - 1}"] if is_array else []),
            ]
            lines += [f"#SBATCH {quoted(flag)}" for flag in common]
        lines.append(f"#SBATCH --nodes={len(part.slots) + part.spares} --ntasks-per-node=1")
        lines += [f"#SBATCH {quoted(flag)}" for flag in ("--no-kill", *part.flags)]
    owner = f"{shlex.quote(folder)}/job-{number}" + ("_$SLURM_ARRAY_TASK_ID" if is_array else "")
    first, count = parts[0].slots[0], len(parts[0].slots)
    lines += [
        "",
        "# if the answer to a submission is lost, there may be a second job: the first one that",
        "# starts has the run",
        f'ln -s "$SLURM_JOB_ID" {owner} 2>/dev/null ||',
        f'  [ "$(readlink {owner})" = "$SLURM_JOB_ID" ] || exit 0',
        "# memory is that of the job; the variables of its components would contradict each other",
        "unset SLURM_CPU_BIND $(env | sed -n 's/^\\(SLURM_MEM_PER_[A-Z0-9_]*\\)=.*/\\1/p')",
        *(
            [
                f"number=$(({number} + SLURM_ARRAY_TASK_ID))",
                f"first=$(({first} + {count} * SLURM_ARRAY_TASK_ID))",
            ]
            if is_array
            else []
        ),
        f"exec {step_of(folder, parts, '$number' if is_array else number, is_array=is_array)}",
    ]
    return "\n".join([*lines, ""])


def step_of(folder: str, parts: Sequence[Component], number: str, *, is_array: bool = False) -> str:
    """The command that starts the node servers of a job, in it: one step. Its tasks are numbered
    over all components. number: of the allocation, or a variable of the shell that has it.
    is_array: the slots follow the one in the shell's variable `first`."""
    if is_array:
        every = f"$first-$((first + {len(parts[0].slots) - 1}))"
    else:
        every = ranges(slot for part in parts for slot in part.slots)
    serve = f"sh {shlex.quote(folder)}/node.sh {number} {every}"
    words = []
    for index, part in enumerate(parts):
        count = len(part.slots)
        options = [f"--het-group={index}"] if len(parts) > 1 else []
        options += [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
        options += [] if part.cpus is None else [f"--cpus-per-task={part.cpus}"]
        words.append(f"{' '.join(options)} {serve}")
    return f"{STEP} " + " : ".join(words)


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as `0-3 5-5`, in their order."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return " ".join(f"{first}-{last}" for first, last in found)


def node_script(folder: str, python: str, program: str, nodes: str) -> str:
    """What each task of a step runs: it serves a node until the run has left it.

    folder: the run's, which nodes share. nodes: the folder with that of each node server.
    """
    from muster.node.serve import SERVED  # its import takes as long as all others here

    here, interpreter = shlex.quote(folder), shlex.quote(python)
    return f"""\
# serves a node; its arguments are the number of its server, and the slots of all tasks, as ranges
number=$1
shift
task=${{SLURM_PROCID:-0}}
for range; do
  first=${{range%-*}} last=${{range#*-}}
  if [ "$task" -le "$((last - first))" ]; then slot=$((first + task)); break; fi
  task=$((task - (last - first) - 1))
done
cd {here} && [ -n "$slot" ] || exit 0
server="$number-$slot"
[ -e "$server.settings" ] || exit 0  # it was given up
mask=$(umask)
umask 077
exec >>"$server.log" 2>&1 </dev/null
umask "$mask"
ended=
trap 'ended=yes' TERM  # the server has got it, too
while :; do
  (
    # variables of the submitter may have any names: those of this script are not used after them
    set -- {shlex.quote(nodes)}"-$server" "$server.settings" "$SLURMD_NODENAME"
    . ./environment
    export MUSTER_NODE_HOST="$3"
    command -v {interpreter} >/dev/null || {{
      echo "muster: there is no {python} on $3; set \\`python\\` in the profile"
      exit 127
    }}
    exec {interpreter} -IS {shlex.quote(program)} serve "$1" <"$2"
  )
  code=$?
  # a server that was killed is started again, and finds its node
  [ "$code" -gt 128 ] && [ -z "$ended" ] && [ -e "$server.settings" ] || break
done
# nobody needs its files if it was given up and told to end; with {SERVED}, another one serves
[ -z "$ended" ] || [ -e "$server.settings" ] || [ "$code" -eq {SERVED} ] ||
  rm -rf {shlex.quote(nodes)}"-$server"
exit "$code"
"""


def environment_script(environ: Mapping[str, str]) -> str:
    """Sets the variables of the submitter, for `node_script`."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in sorted(environ.items())
        if name.isidentifier() and name.isascii() and not _is_own(name)
    )


#: Variables that Slurm sets for each task, or that are of the machine where `muster` runs.
_NOT_PASSED = frozenset(
    (
        *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
        *("ZE_AFFINITY_MASK", "HOSTNAME", "TMPDIR"),
    )
)
#: Variables of shells: setting them there fails, or changes what the shell does.
_OF_SHELLS = frozenset(
    (
        *("UID", "EUID", "GID", "EGID", "PPID", "PGRP", "KSHUID", "KSHGID", "USER_ID", "IFS"),
        *("OPTIND", "OPTARG", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO", "KSH_VERSION"),
    )
)
_PREFIXES = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "PMI")


def _is_own(name: str) -> bool:
    return name in _NOT_PASSED or name in _OF_SHELLS or name.startswith(_PREFIXES)
