"""`muster engines`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.completion_values import engines as engine_names
from muster.cli.findings import print_findings
from muster.cli.local import check_local
from muster.cli.output import print_json, print_table
from muster.cli.terminal import echo
from muster.errors import EXIT_RUN_FAILED

if TYPE_CHECKING:
    from muster.api.answers import EngineInfo


@click.group(cls=Group)
def engines() -> None:
    """List and add engines: where nodes can run.

    Jobs choose one with `engine: NAME`, runs also with `--engine NAME`. `local` is there from the
    start; `add` describes other machines. Other packages can provide engines, too.
    """


@engines.command("list")
@json_option()
def list_engines(as_json: bool) -> None:
    """List the installed engines, and what each can do.

    \b
    muster engines list
    """
    from muster.client.client import Client

    found = Client().api.engines()
    if as_json:
        print_json([_data(one) for one in found])
        return
    rows = [(one.name, one.origin, "no" if one.unusable else "yes") for one in found]
    print_table(("ENGINE", "FROM", "USABLE HERE"), rows, shorten={"FROM": 12})
    for one in found:
        echo()
        echo(_described(one), wrap=True)


@engines.group(cls=Group)
def add() -> None:
    """Add an engine: say where else nodes can run.

    What is added is written to a file, which can be edited: MUSTER_HOME/engines/NAME.toml.
    """


def _name_option(kind: str) -> Callable[[Any], Any]:
    help_text = f"The engine's name, as for `muster run --engine NAME`. Default: {kind}."
    return click.option("--name", default=kind, metavar="NAME", help=help_text)


def _options_of(texts: Mapping[str, str]) -> Callable[[Any], Any]:
    """An option for each name, with its help."""

    def decorate(command: Any) -> Any:
        for name, text in reversed([*texts.items()]):
            command = click.option(f"--{name}", metavar="TEXT", help=text)(command)
        return command

    return decorate


@add.command()
@click.option(
    "--host",
    "hosts",
    multiple=True,
    required=True,
    metavar="[USER@]HOST[:PORT]",
    help="A machine that `ssh` reaches without a password. May be repeated.",
)
@_name_option("hosts")
@click.option(
    "--gpus",
    type=click.IntRange(0, 1024),
    help="How many GPUs of each machine runs may use. Default: all that are found there.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 1024),
    help="How many nodes each machine without GPUs runs at a time. Default: 1.",
)
@click.option(
    "--python",
    metavar="PATH",
    help="The Python of the machines that runs jobs, with their packages. Default: python3.",
)
@click.option(
    "--folder",
    metavar="PATH",
    help="Where nodes have their files on the machines. Default: ~/.local/state/muster-nodes.",
)
@click.option("--ssh-config", metavar="FILE", help="A configuration of ssh, as for `ssh -F`.")
@click.option(
    "--isolation-timeout",
    metavar="DURATION",
    help="Time without contact after which a machine ends its nodes, so that they can be "
    "replaced. Default: never; a run waits until it can be reached again.",
)
@click.option("--replace", is_flag=True, help="Replace an engine of this name.")
@click.pass_context
def hosts(ctx: click.Context, /, name: str, replace: bool, **settings: Any) -> None:
    """Add machines that OpenSSH reaches.

    Nothing has to be installed there but Python 3.9 or newer and what the jobs import. Two people
    whose runs use the same machine, or the same GPUs, take turns.

    \b
    muster engines add hosts --host ana@gpu1 --host gpu2:2222 --gpus 8
    """
    if (config := settings["ssh_config"]) is not None:
        settings["ssh_config"] = os.path.abspath(os.path.expanduser(config))
    _add(ctx, name, "hosts", settings, replace=replace)


@add.command()
@click.option(
    "--socket",
    metavar="PATH",
    help="Where the engine listens. Default: $DOCKER_HOST, or where Docker and Podman usually do.",
)
@click.option("--image", help="The image of nodes whose job names none. Default: Python's own.")
@click.option(
    "--python",
    metavar="PATH",
    help="The Python of images that runs `python` jobs. Default: python3.",
)
@click.option(
    "--pull",
    type=click.Choice(["missing", "always", "never"]),
    help="When images are pulled at the start of a run. Default: missing.",
)
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="SOURCE[:TARGET][:ro]",
    help="A directory of this machine that all nodes see. May be repeated.",
)
@_name_option("container")
@click.option("--replace", is_flag=True, help="Replace an engine of this name.")
@click.pass_context
def container(ctx: click.Context, /, name: str, replace: bool, **settings: Any) -> None:
    """Set defaults for nodes in containers of Docker or Podman.

    Without them, `--engine container` works as well.

    \b
    muster engines add container --image docker.io/pytorch/pytorch:latest
    """
    _add(ctx, name, "container", settings, replace=replace)


_SLURM_HELP = {
    "account": "The account that jobs are charged to.",
    "partition": "The partitions of jobs, separated by commas.",
    "qos": "The quality of service of jobs.",
    "constraint": "Features of the machines, such as a100.",
    "reservation": "A reservation.",
}


@add.command()
@_name_option("slurm")
@_options_of(_SLURM_HELP)
@click.option(
    "--extra", multiple=True, metavar="FLAG", help="Another flag of sbatch. May be repeated."
)
@click.option(
    "--spares",
    type=click.IntRange(0, 1024),
    help="Additional machines of each allocation, which replace those that are lost. Default: 0.",
)
@click.option(
    "--folder",
    metavar="PATH",
    help="A folder on a file system that all nodes share. Default: MUSTER_HOME/slurm.",
)
@click.option(
    "--scratch",
    metavar="PATH",
    help="Where nodes have their own files, on each machine. Default: in the shared folder.",
)
@click.option(
    "--python",
    metavar="PATH",
    help="The Python of the machines that runs jobs. Default: the one that runs them here.",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="The address of this machine that nodes reach. Default: by the route to them.",
)
@click.option("--replace", is_flag=True, help="Replace an engine of this name.")
@click.pass_context
def slurm(ctx: click.Context, /, name: str, replace: bool, **settings: Any) -> None:
    """Set defaults for jobs of Slurm.

    `muster run --engine slurm` works without, with the defaults of the cluster. Jobs can set the
    same in `slurm`.

    \b
    muster engines add slurm --account lab --partition gpu
    """
    _add(ctx, name, "slurm", settings, replace=replace)


_OCI_HELP = {
    "shape": "The shape of nodes whose job names none. Default: VM.Standard.E4.Flex.",
    "subnet": "The OCID of the subnet of nodes. Default: the network of the service.",
    "log-group": "The OCID of a log group, in which each job run has a log. Default: no log.",
    "log": "The OCID of a log in it, in which all job runs write instead.",
    "image": "The image of nodes whose job names none. Default: the service's own environment.",
    "config": "The file with credentials. Default: ~/.oci/config.",
    "config-profile": "The profile in it. Default: DEFAULT.",
    "region": "The region, in place of the one in the file.",
    "endpoint": "The URL of the service. Default: that of the region.",
    "bucket": "The bucket for messages of nodes that do not reach this machine: oci://NAME@NAMESPACE.",
    "address": "The address of this machine that nodes reach, if they do.",
    "ports": "The ports of this machine that nodes reach, as in 7000-7100. Default: any.",
}


@add.command()
@click.option("--compartment", required=True, metavar="OCID", help="The compartment of the jobs.")
@click.option("--project", required=True, metavar="OCID", help="The project of the jobs.")
@_name_option("oci")
@_options_of(_OCI_HELP)
@click.option(
    "--auth",
    type=click.Choice(["api_key", "security_token", "resource_principal", "instance_principal"]),
    help="How requests are signed. Default: api_key.",
)
@click.option(
    "--multi-node/--no-multi-node",
    default=None,
    help="Whether nodes of a run share a job run; else each has one. Default: they do.",
)
@click.option("--replace", is_flag=True, help="Replace an engine of this name.")
@click.pass_context
def oci(ctx: click.Context, /, name: str, replace: bool, **settings: Any) -> None:
    """Add OCI Data Science, or a server that answers as it does.

    It needs Oracle's SDK: pip install 'muster-jobs[oci]'.

    \b
    muster engines add oci --compartment ocid1.compartment.oc1..aaaa \\
        --project ocid1.datascienceproject.oc1.iad.aaaa --bucket oci://jobs@ourtenancy
    """
    _add(ctx, name, "oci", settings, replace=replace)


_KUBERNETES_HELP = {
    "context": "The context of kubectl. Default: the current one.",
    "namespace": "The namespace of runs. Default: that of the context.",
    "kubeconfig": "The file with contexts. Default: $KUBECONFIG, or ~/.kube/config; in a pod, its "
    "service account.",
    "image": "The image of nodes whose job names none. Default: Python's own.",
    "python": "The Python of images. Default: python3.",
    "queue": "The LocalQueue of Kueue in which runs wait. Default: none.",
    "queue-priority": "The WorkloadPriorityClass of runs in it.",
    "claim": "A PersistentVolumeClaim with a volume that all pods share. Code is sent there once.",
    "code-limit": "Size limit of a job's code, which is sent to each pod through the API "
    "server. Default: 64MiB.",
    "address": "The address of this machine that pods dial, with --contact dial.",
    "ports": "The ports of this machine that pods dial, as in 7000-7100. Default: any.",
}


@add.command()
@_name_option("kubernetes")
@_options_of(_KUBERNETES_HELP)
@click.option(
    "--contact",
    type=click.Choice(["exec", "dial"]),
    help="How pods are reached: by exec streams of the API server, or they dial this machine. "
    "Default: exec.",
)
@click.option(
    "--image-pull-secret",
    "image_pull_secrets",
    multiple=True,
    metavar="NAME",
    help="A Secret with the login of a registry. May be repeated.",
)
@click.option("--replace", is_flag=True, help="Replace an engine of this name.")
@click.pass_context
def kubernetes(ctx: click.Context, /, name: str, replace: bool, **settings: Any) -> None:
    """Add a cluster of Kubernetes, or set defaults for runs there.

    `muster run --engine kubernetes` works without, in the current context of kubectl. It needs
    an HTTP client: pip install 'muster-jobs[kubernetes]'.

    \b
    muster engines add kubernetes --context gpu-cluster --namespace research
    muster engines add kubernetes --name lab --context lab --queue team-vision
    """
    if (config := settings["kubeconfig"]) is not None:
        files = [os.path.abspath(os.path.expanduser(one)) for one in config.split(os.pathsep)]
        settings["kubeconfig"] = os.pathsep.join(files)
    _add(ctx, name, "kubernetes", settings, replace=replace)


@engines.command()
@click.argument("name", shell_complete=engine_names)
@click.option("--user", "users", multiple=True, metavar="NAME", help="Who gets it. Repeatable.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A group that gets it.")
@click.option(
    "--service-account",
    "service_accounts",
    multiple=True,
    metavar="[NAMESPACE:]NAME",
    help="A service account that gets it.",
)
def role(name: str, **grantees: tuple[str, ...]) -> None:
    """Print the Role that runs on Kubernetes need.

    An administrator applies it. It has no more verbs than Muster uses. With --user, --group or
    --service-account, a RoleBinding follows; each may be repeated.

    \b
    muster engines role kubernetes --group researchers | kubectl apply -f -
    """
    from muster.service.engines import rights

    check_local("rights are printed")
    echo(rights(name, **grantees), end="")


@engines.command()
@click.argument("name", shell_complete=engine_names)
@click.pass_context
def check(ctx: click.Context, name: str) -> None:
    """Check what an engine needs to run nodes.

    Such as whether its machines can be reached. Exits with 1 if something does not work. `muster
    check` also tries a job's framework there.

    \b
    muster engines check hosts
    """
    _print_findings(ctx, name)


@engines.command()
@click.argument("name", shell_complete=engine_names)
@click.option(
    "--force", is_flag=True, help="Also if runs use it: no command can reach their nodes then."
)
def remove(name: str, force: bool) -> None:
    """Remove an engine that was added. Not while runs use it.

    \b
    muster engines remove hosts
    """
    from muster.service.engines import remove as remove_engine

    check_local("engines are removed")
    echo(f"removed {remove_engine(name, force=force)}", err=True)


def _add(
    ctx: click.Context, name: str, kind: str, settings: Mapping[str, Any], *, replace: bool
) -> None:
    """Add an engine with the settings that were given, and print what it finds."""
    from muster.service.engines import add as add_engine

    check_local("engines are added")
    given = {key: value for key, value in settings.items() if value not in (None, ())}
    file = add_engine(name, kind, given, os.environ, replace=replace)
    echo(f"wrote engine {name} to {file}", err=True)
    _print_findings(ctx, name)


def _print_findings(ctx: click.Context, name: str) -> None:
    """Print what an engine finds, and exit with 1 if something does not work."""
    from muster.client.client import Client

    findings = Client().api.check_engine(name)
    print_findings(findings)
    if not all(one.works for one in findings):
        ctx.exit(EXIT_RUN_FAILED)


def _described(one: EngineInfo) -> str:
    """What the engine can do and cannot do, as two lines at most, or why it cannot be used."""
    from muster.engines.capabilities import PHRASES

    if one.capabilities is None:
        return one.unusable
    if one.unusable:
        return f"{one.name} cannot be used here: {one.unusable}"
    lines = []
    for able, what in ((True, "can"), (False, "cannot")):
        phrases = [PHRASES[name] for name, can in one.capabilities.items() if can is able]
        if phrases:
            lines.append(f"{one.name} {what}: {', '.join(phrases)}")
    return "\n".join(lines)


def _data(one: EngineInfo) -> dict[str, Any]:
    """An engine as JSON. capabilities: empty if the engine cannot be loaded."""
    return {
        "name": one.name,
        "from": one.origin,
        "usable": not one.unusable,
        "why_not": one.unusable or None,
        "capabilities": dict(one.capabilities or {}),
    }
