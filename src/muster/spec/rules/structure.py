"""Rules for programs, probes, sizes, names and mounts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from muster.errors import Problem
from muster.spec.models import DEFAULT_FRAMEWORK, JobSpec, Mount, NodeGroup, Probe
from muster.spec.oci_variables import has_command, image_in
from muster.spec.override_models import ONLY_GROUP
from muster.spec.placeholders import OF_SECRET, as_label, placeholders
from muster.spec.values import MAX_ENV_CHARACTERS, MAX_NODES, MAX_PROCESSES, is_file_path

_TAKEN = ("/", "/proc", "/sys", "/dev")


def probes_without_check(spec: JobSpec) -> Iterator[Problem]:
    for path, probe in _probes(spec):
        if probe is not None and probe.exec_ is None and probe.tcp is None and probe.file is None:
            hint = "give exactly one of exec, tcp and file"
            yield Problem(path, "has neither exec, tcp nor file", hint)


def missing_program(spec: JobSpec) -> Iterator[Problem]:
    if spec.artifact is not None or spec.git is not None or _has_program(spec):
        return
    if not any(_has_program(group) for group in spec.node_groups):
        yield Problem("", "nothing to run", "give an artifact, a command or an image")
        return
    if spec.framework != DEFAULT_FRAMEWORK:
        return  # the framework may know what some groups run
    for number, group in enumerate(spec.node_groups):
        if not _has_program(group):
            text = f"nothing to run in group {group.name}"
            hint = "give it a command or an image, or the job an artifact"
            yield Problem(f"node_groups[{number}]", text, hint)


def _has_program(level: JobSpec | NodeGroup) -> bool:
    """Whether there is a command, or an image, which has a program of its own."""
    given = level.command or level.image or has_command(level.env) or image_in(level.env)
    return given is not None and bool(given)


def _probes(spec: JobSpec) -> Iterator[tuple[str, Probe | None]]:
    yield from _probes_of("", spec)
    for number, group in enumerate(spec.node_groups):
        yield from _probes_of(f"node_groups[{number}].", group)


def _probes_of(prefix: str, level: JobSpec | NodeGroup) -> Iterator[tuple[str, Probe | None]]:
    yield f"{prefix}startup_probe", level.startup_probe
    yield f"{prefix}liveness_probe", level.liveness_probe


def numbers(spec: JobSpec) -> Iterator[Problem]:
    for prefix, group in groups_of(spec):
        replicas = group.first_replicas
        if group.min_success is not None and group.min_success > replicas:
            are = f"there are {replicas:,}" if replicas > 1 else "there is only 1"
            text = f"{group.min_success} replicas must succeed, but {are}"
            is_known = prefix or group.array is not None
            hint = f"at most {replicas:,}" if is_known else "give replicas, too"
            yield Problem(f"{prefix}min_success", text, hint)
        if group.most_replicas < replicas:
            text = f"{group.max_replicas} is fewer than replicas, {replicas}"
            yield Problem(f"{prefix}max_replicas", text, f"at least {replicas}")
    groups = spec.node_groups or (spec.only_group,)
    path = "node_groups" if spec.node_groups else "nodes"
    together = sum(group.nodes * group.most_replicas for group in groups if not group.is_array)
    if together > MAX_NODES:
        yield Problem(path, f"{together:,} nodes in all", f"a run can have {MAX_NODES:,}")
    elif (processes := together * spec.processes_per_node) > MAX_PROCESSES:
        hint = f"a run can have {MAX_PROCESSES:,}"
        yield Problem("processes_per_node", f"{processes:,} processes in all", hint)


def groups_of(spec: JobSpec) -> Iterator[tuple[str, NodeGroup]]:
    """Each group with the start of the paths of its settings."""
    if not spec.node_groups:
        yield "", spec.only_group
    for number, group in enumerate(spec.node_groups):
        yield f"node_groups[{number}].", group


def array_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Problems with arrays."""
    names = ("array", "parallelism", "max_failed", "only", "total_retries")
    groups = [group for _, group in groups_of(spec)]
    if any(
        group.early_success or any(getattr(group, name) is not None for name in names)
        for group in groups
    ):
        from muster.spec.rules.arrays import array_problems  # few jobs have an array

        yield from array_problems(spec)


def unfilled_placeholders(spec: JobSpec) -> Iterator[Problem]:
    """Placeholders of parameters where no array provides any. spec: that of a run, in normal form;
    the array of a job may be given with its run."""
    for path, group in groups_of(spec):
        words = (*(group.command or ()), *(group.args or ()), *group.env.values())
        if any("{param." in text for text in words):
            from muster.spec.rules.arrays import unfilled  # few jobs have placeholders

            yield from unfilled(path, group)


def job_conflicts(spec: JobSpec) -> Iterator[Problem]:
    if spec.node_groups:
        for name in ONLY_GROUP:
            if getattr(spec, name) is not None:
                hint = "set it in the groups"
                yield Problem(name, "conflicts with node_groups", hint)
    if spec.command is not None and spec.entrypoint is not None:
        yield Problem("command", "conflicts with entrypoint", "keep only one of them")
    yield from _own("", spec)


def duplicate_names(spec: JobSpec) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    labels: dict[str, str] = {}
    for number, group in enumerate(spec.node_groups):
        label = as_label(group.name)
        if group.name in seen:
            text = f"node_groups[{seen[group.name]}] is already named {group.name!r}"
            yield Problem(f"node_groups[{number}].name", text, "group names are unique")
        elif label in labels:
            text = f"{group.name!r} and {labels[label]!r} are both {label} in host names"
            hint = "use names that differ in more than capitals, - and _"
            yield Problem(f"node_groups[{number}].name", text, hint)
        seen.setdefault(group.name, number)
        labels.setdefault(label, group.name)


def secrets_in_env(path: str, env: Mapping[str, str]) -> Iterator[Problem]:
    """Secrets in variables that have no placeholders."""
    for name, value in env.items():
        if "${secret." not in value:
            continue
        used = [one for one in placeholders(value) if one.startswith(OF_SECRET)]
        if used:
            text = f"has no placeholders: ${{{used[0]}}} would stay as it is"
            yield Problem(f"{path}.{name}", text, "write the variable in node_env of a group")


def level_conflicts(spec: JobSpec) -> Iterator[Problem]:
    yield from secrets_in_env("env", spec.env)
    too_long = list(_env("env", spec.env))
    yield from too_long
    yield from mount_problems("mounts", spec.mounts)
    for number, group in enumerate(spec.node_groups):
        path = f"node_groups[{number}]"
        yield from _own(f"{path}.", group)
        yield from secrets_in_env(f"{path}.env", group.env)
        if not too_long:  # the groups inherit the problem from the job
            yield from _env(f"{path}.env", {**spec.env, **group.env, **group.node_env})
        yield from mount_problems(f"{path}.mounts", group.mounts, spec.mounts)
        if any(mount.files for mount in group.mounts):
            from muster.spec.rules.mount_files import too_much  # few mounts have any

            yield from too_much(f"{path}.mounts", (*spec.mounts, *group.mounts), spec.secrets)
        if group.extra_containers:
            from muster.spec.rules.extra_containers import container_problems  # few have any

            yield from container_problems(path, group)


def incomplete_mounts(spec: JobSpec) -> Iterator[Problem]:
    """Mounts of nothing, and of parts that are not there."""
    levels = [("mounts", spec.mounts)]
    levels += [(f"node_groups[{n}].mounts", g.mounts) for n, g in enumerate(spec.node_groups)]
    for path, mounts in levels:
        for number, mount in enumerate(mounts):
            place = f"{path}[{number}]"
            if mount.source is None and not mount.files:
                text = "has neither source nor files"
                yield Problem(place, text, "give exactly one of them")
            elif mount.source is None and mount.sub_path is not None:
                from muster.spec.rules.mount_files import missing_part  # few mounts have any

                yield from missing_part(place, mount)


def _own(prefix: str, level: JobSpec | NodeGroup) -> Iterator[Problem]:
    """Rules for fields that the job and its groups both have."""
    for path, probe in _probes_of(prefix, level):
        if probe is not None:
            yield from probe_problems(path, probe)
    for name in ("command", "after_start", "before_stop"):
        yield from _program(f"{prefix}{name}", getattr(level, name))
    if level.preflight is not None:
        yield from _program(f"{prefix}preflight.command", level.preflight.command)
    if ".." in (level.working_dir or "").split("/"):
        text = f"{level.working_dir} contains .."
        yield Problem(f"{prefix}working_dir", text, "write it without ..")


def probe_problems(path: str, probe: Probe) -> Iterator[Problem]:
    looks = {"exec": probe.exec_, "tcp": probe.tcp, "file": probe.file}
    given = [name for name, look in looks.items() if look is not None]
    if len(given) > 1:
        yield Problem(path, f"has {' and '.join(given)}", "give exactly one of exec, tcp and file")
    if probe.http is not None and (probe.tcp is None or not probe.http.startswith("/")):
        text = f"{probe.http} is not a path on a server" if probe.tcp else "needs a port"
        yield Problem(f"{path}.http", text, "write {tcp: 8080, http: /healthz}")
    yield from _program(f"{path}.exec", probe.exec_)


def _program(path: str, command: Sequence[str] | None) -> Iterator[Problem]:
    if command is not None and not (command and command[0]):
        yield Problem(path, "is empty", "give a program to run")


def _env(path: str, env: Mapping[str, str]) -> Iterator[Problem]:
    characters = sum(len(name) + len(value) for name, value in env.items())
    if characters > MAX_ENV_CHARACTERS:
        text = f"{characters:,} characters in names and values, {MAX_ENV_CHARACTERS:,} are allowed"
        yield Problem(path, text, "put large values into a file")


def _leads_inside(link: str) -> bool:
    return not link.startswith("/") and {*link.strip("/").split("/")}.isdisjoint(("", ".", ".."))


#: Sources whose names are checked with the source.
_NAMED = ("scratch:", "volume:")


def mount_problems(
    path: str, mounts: Sequence[Mount], inherited: Sequence[Mount] = ()
) -> Iterator[Problem]:
    seen = {mount.destination: _named(mount) for mount in inherited}
    for number, mount in enumerate(mounts):
        where = mount.destination
        last = mount.last_component
        place = f"{path}[{number}]"
        what = _named(mount)
        unnamed = last in ("", ".", "..") or last.endswith(":")
        yield from _content(place, mount)
        if mount.path is None and unnamed and not what.startswith(_NAMED):
            text = f"{what} {'have' if mount.source is None else 'has'} no name for a mount point"
            yield Problem(place, text, "give it a path")
        elif mount.path is not None and ".." in mount.path.split("/"):
            text = f"{mount.path} contains .."
            yield Problem(f"{place}.path", text, "write it without ..")
        elif mount.link is not None and not _leads_inside(mount.link):
            text = f"{mount.link} is not a path below the directory where processes start"
            yield Problem(f"{place}.link", text, "write data, or data/input.txt")
        elif where in _TAKEN:
            text = f"{what} cannot be mounted over {where}"
            yield Problem(place, text, "give it another path")
        elif where in seen:
            text = f"{seen[where]} and {what} are both mounted at {where}"
            yield Problem(place, text, "give one of them another path")
        seen.setdefault(where, what)


def _named(mount: Mount) -> str:
    """A mount in a message: its source, or its files."""
    if mount.source is not None:
        return mount.source
    return f"the files {', '.join(list(mount.files)[:3])}{', ...' * (len(mount.files) > 3)}"


def _content(path: str, mount: Mount) -> Iterator[Problem]:
    """Problems of a mount with given files, and of what is mounted of one."""
    if mount.source is not None and mount.files:
        yield Problem(path, "has source and files", "give exactly one of them")
    if mount.sub_path is not None and not is_file_path(mount.sub_path):
        text = f"{mount.sub_path} is not a path below the mount"
        yield Problem(f"{path}.sub_path", text, "write it without .. and without / at its ends")
    if mount.files:
        from muster.spec.rules.mount_files import file_problems  # few mounts have any

        yield from file_problems(path, mount)


#: Maximum groups of a job: more is probably a mistake.
MAX_GROUPS = 1_000
#: Maximum bytes of one word of a command line (Linux: MAX_ARG_STRLEN, without the final NUL).
MAX_WORD = 131_071
#: Maximum bytes of a command line. Linux: 2 MiB with the environment and a pointer for each word.
MAX_WORDS = 1_500_000
_POINTER = 8


def too_many_groups(spec: JobSpec) -> list[Problem]:
    """Too many groups to check anything else."""
    count = len(spec.node_groups)
    if count <= MAX_GROUPS:
        return []
    hint = "use one group with replicas for equal groups"
    return [Problem("node_groups", f"{count:,} groups, {MAX_GROUPS:,} are allowed", hint)]


def too_long_commands(spec: JobSpec) -> Iterator[Problem]:
    """Command lines that exceed limits of the kernel."""
    yield from _level("", spec, ("command", "args"))
    for number, group in enumerate(spec.node_groups):
        yield from _level(f"node_groups[{number}].", group, ("command", "args", "node_args"))


def _level(prefix: str, level: JobSpec | NodeGroup, names: Sequence[str]) -> Iterator[Problem]:
    total = 0
    for name in names:
        words: Sequence[str] = getattr(level, name) or ()
        sizes = [len(word.encode()) for word in words]
        total += sum(sizes) + (1 + _POINTER) * len(sizes)
        for number, size in enumerate(sizes):
            if size > MAX_WORD:
                text = f"{size:,} bytes in one word, {MAX_WORD:,} are allowed"
                yield Problem(f"{prefix}{name}[{number}]", text, "put it into a file")
    if total > MAX_WORDS:
        text = f"{total:,} bytes in the words of a command, {MAX_WORDS:,} are allowed"
        yield Problem(f"{prefix}args", text, "put them into a file")
