"""Options that other programs have for `muster run`, and their command lines as those of it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click


class Foreign(NamedTuple):
    """An option of another program."""

    #: What to do instead.
    hint: str
    #: The words of `muster run` for a value; None if there are none for it. Without: none at all.
    ours: Callable[[str], str | None] = lambda _: ""
    takes_value: bool = True


def _write(
    template: str, example: str, value: Callable[[str], str | None] = lambda text: text
) -> Foreign:
    """An option with a counterpart. template: with {} for the value. value: converts it."""

    def ours(text: str) -> str | None:
        converted = value(text)
        return None if not converted else template.format(shlex.quote(converted))

    return Foreign(f"write {template.format(example)}", ours)


def _number(text: str) -> str | None:
    return text if text.isdecimal() else None


def _last_number(text: str) -> str | None:
    """2 for `gpu:a100:2`, 1 for `gpu`."""
    last = text.rpartition(":")[2]
    return last if last.isdecimal() else None if ":" in text or "," in text else "1"


def _memory(text: str) -> str | None:
    """Slurm's sizes: powers of 1024, in MiB without a unit."""
    match = re.fullmatch(r"(\d+)([KMGT]?)(i?B)?", text, re.IGNORECASE)
    return f"{match[1]}{match[2].upper() or 'M'}iB" if match else None


def _time(text: str) -> str | None:
    """Slurm's times: minutes, or H:M:S."""
    if text.isdecimal():
        return f"{text}m"
    if match := re.fullmatch(r"(\d+):(\d+):(\d+)", text):
        units = zip(map(int, match.groups()), "hms", strict=True)
        return "".join(f"{count}{unit}" for count, unit in units if count) or None
    return text if re.fullmatch(r"(\d+[smhd])+", text) else None


def _torchx_size(text: str) -> str | None:
    """TorchX: NODESxPROCESSES."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    return f"-n {match[1]} --processes-per-node {match[2]}" if match else None


def _of_profile(setting: str, example: str) -> Foreign:
    """A setting of an engine `kubernetes`, which runs do not choose."""
    command = f"muster engines add kubernetes --name NAME --{setting} {example}"
    hint = f"a cluster's {setting} belongs to its engine: `{command}`, then `--engine NAME`"
    return Foreign(hint, lambda _: None)


_NOT_NEEDED = Foreign("leave it out: it is not needed", takes_value=False)
_OF_ENGINE = Foreign("leave it out: `--engine` says where nodes run")
_CHOSEN = Foreign("leave it out: the engine chooses where nodes run")
_SET_BY_MUSTER = Foreign("leave it out: Muster sets it")
_SHELL = Foreign(
    "leave it out. `muster shell RUN` opens a shell in a running node", takes_value=False
)
_FOLLOWED = Foreign("leave it out: a run is followed unless -d is given", takes_value=False)

#: Names of an option -> the option.
_GROUPS = {
    "-N -np --np --num-nodes --nnodes --num-workers --ntasks --replicas": _write(
        "-n {}", "N", _number
    ),
    "--nproc-per-node --ntasks-per-node --tasks-per-node -ppn": _write(
        "--processes-per-node {}", "N", _number
    ),
    "-j": Foreign("write -n N --processes-per-node M", _torchx_size),
    "--gres --gpus-per-node --accelerators --num-gpus --gpu": _write(
        "--set resources.gpus={}", "N", _last_number
    ),
    "--cpus-per-task --num-cpus -c": _write("--set resources.cpus={}", "N"),
    "--mem": _write("--set resources.memory={}", "4GiB", _memory),
    "--time --time-limit --walltime --timeout -t": _write("--max-runtime {}", "1h", _time),
    "--retries --max-retries": _write("--max-restarts {}", "N", _number),
    "--workdir --chdir --working-dir --cwd -w -D": _write("--set working_dir={}", "DIR"),
    "--job-name -J": _write("--name {}", "NAME"),
    "--volume -v": _write("--mount {}", "SRC:PATH"),
    "-x": _write("--env {}", "NAME"),
    "--file -f": Foreign("name the file without an option: `muster run FILE`", lambda _: None),
    "-m": Foreign("write `muster run -- python -m MODULE`", lambda _: None),
    "--background": Foreign("write --detach", lambda _: "--detach", takes_value=False),
    "--follow --wait --attach": _FOLLOWED,
    "--interactive --tty -i -it -ti": _SHELL,
    "--rm": Foreign(
        "leave it out. `muster rm RUN` deletes a run that has ended", takes_value=False
    ),
    "--yes -y": Foreign("leave it out: `muster run` asks nothing", takes_value=False),
    "--publish -p": Foreign(
        "leave it out. `muster open RUN --port N` forwards a port of a node", lambda _: None
    ),
    **{
        f"--{name}{short}": _write(f"--set slurm.{name}={{}}", name.upper())
        for name, short in (
            *(("partition", ""), ("account", " -A"), ("qos", " -q"), ("constraint", " -C")),
            *(("reservation", ""), ("licenses", " -L"), ("nodelist", ""), ("exclude", "")),
        )
    },
    "--exclusive": Foreign(
        "write --set slurm.exclusive=true", lambda _: "--set slurm.exclusive=true", False
    ),
    "--namespace": _of_profile("namespace", "NAMESPACE"),
    "--context": _of_profile("context", "CONTEXT"),
    "--kubeconfig": _of_profile("kubeconfig", "FILE"),
    "--queue --queue-name --local-queue --localqueue": _write("--set kueue.queue={}", "QUEUE"),
    "--service-account --serviceaccount": _write("--set kubernetes.service_account={}", "NAME"),
    "--scheduler -s": _write("--engine {}", "NAME"),
    "--pull": _write("--set container.pull={}", "always"),
    "--cloud --region --instance-type": _OF_ENGINE,
    "--hostfile --host -H --bind-to --map-by": _CHOSEN,
    "--oversubscribe --allow-run-as-root": _NOT_NEEDED,
    "--rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf": _SET_BY_MUSTER,
    "--node-rank --master-addr --master-port": _SET_BY_MUSTER,
    "--standalone": _SET_BY_MUSTER._replace(takes_value=False),
}
_OPTIONS = {name: option for names, option in _GROUPS.items() for name in names.split()}


def foreign(name: str) -> Foreign | None:
    """The option of this name. Long names may be written with underscores."""
    return _OPTIONS.get(name.replace("_", "-") if name.startswith("--") else name)


class Translated(NamedTuple):
    """The words of another launcher's command line."""

    #: Options of `muster run`.
    options: list[str]
    #: The words that follow the options.
    rest: list[str]


def translate(words: Sequence[str], own: dict[str, bool]) -> Translated | None:
    """Options of another program as those of `muster run`; None if one of them has no counterpart.

    own: names of options that are kept -> whether they take a value.
    """
    options: list[str] = []
    rest = [*words]
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        short = name[:2]
        if name not in own and foreign(name) is None and len(name) > 2 and name[1] != "-":
            name, equals, value = short, "=", name[2:]  # -N2
        if name in own:
            options.append(word)
            if own[name] and not equals and rest:
                options.append(rest.pop(0))
            continue
        found = foreign(name)
        if found is None:
            return None
        if found.takes_value and not equals:
            if not rest:
                return None
            value = rest.pop(0)
        ours = found.ours(value)
        if ours is None:
            return None
        options += shlex.split(ours)
    return Translated(options, rest)


def options_of(command: click.Command) -> dict[str, bool]:
    """The names of a command's options -> whether they take a value."""
    return {
        name: not (param.is_flag or param.count)
        for param in command.params
        if isinstance(param, click.Option)
        for name in param.opts
    }


#: Launchers -> the words of `muster` for them.
LAUNCHERS = {
    "mpiexec": ("run",),
    "mpirun": ("run",),
    "sbatch": ("run", "--detach"),
    "srun": ("run",),
    "torchrun": ("run", "--framework", "pytorch"),
}


def of_launcher(name: str, words: Sequence[str]) -> str:
    """The command for one of LAUNCHERS. With placeholders if there is none for its options."""
    from muster.cli.run import run

    # short options differ in what they mean, but for the number of tasks
    own = {name: value for name, value in options_of(run).items() if name[1] == "-"}
    found = translate(words, {**own, "-n": True})
    lead = ["muster", *LAUNCHERS[name]]
    if found is None:
        return shlex.join([*lead, "-n", "N", "--", "PROGRAM"])
    lead += found.options
    program = found.rest[1:] if found.rest[:1] == ["--"] else found.rest
    if not program:
        return shlex.join([*lead, "TARGET"])
    target, *args = program
    if name == "torchrun" or os.path.isfile(target):
        return shlex.join([*lead, target, *(["--", *args] if args else [])])
    return shlex.join([*lead, "--", *program])
