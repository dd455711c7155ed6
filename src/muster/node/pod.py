"""Serve the node of a pod in a Kubernetes cluster: what its first container runs.

The folder of the node program has a file that describes the run (`DESCRIPTION`). The command line
names the folder of the server and, if there are any, the file with the node's key, a volume that
pods share, for code, and the pod's hosts file. Which slot the pod serves follows from its group and
the index of its Job, which are variables of the manifest, and from its own index, which is a
variable of the Job controller.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Mapping, NamedTuple, Sequence

from muster.node.files import read_regular
from muster.node.greeting import node_token
from muster.node.kept_server import keep_serving
from muster.node.serve import SETTINGS, TOKEN

#: The file with the description of the run.
DESCRIPTION = "run.json"
#: How words of the command line begin: the path of the file with the node's key (`greeting`), if it
#: dials its supervisor, of the folder that pods share, and of the pod's hosts file.
KEY, SHARED, HOSTS = "key=", "shared=", "hosts="
GROUP, JOB, RESTARTS = "MUSTER_POD_GROUP", "MUSTER_POD_JOB", "MUSTER_POD_RESTARTS"
#: Kubernetes: a variable of every pod of an Indexed Job.
INDEX = "JOB_COMPLETION_INDEX"
_MOST_BYTES = 1 << 20


class CannotStart(Exception):  # noqa: N818
    """The text says why."""


class Group(NamedTuple):
    """The pods of a node group."""

    #: Ranges of their slots, in order: the first, and the one after the last.
    slots: Sequence[Sequence[int]]
    #: How many Jobs it has, and nodes in each.
    jobs: int
    nodes: int
    #: What each node may use: the fields of `control_groups.Amounts`.
    amounts: Mapping[str, Any]
    #: Whether the log of a pod has the output of its programs, too.
    pod_log: bool


class Description(NamedTuple):
    """What the pods of a run are told."""

    #: Settings of all servers, see `serve.Settings`.
    settings: Mapping[str, Any]
    #: Replicated Job -> its nodes.
    groups: Mapping[str, Mapping[str, Any]]


def own_slot(groups: Mapping[str, Group], environ: Mapping[str, str]) -> int:
    """The slot of this pod. Raises CannotStart."""
    group = groups.get(environ.get(GROUP, ""))
    if group is None:
        given = environ.get(GROUP)
        raise CannotStart("%s is %.100r, which is no group of the run" % (GROUP, given))
    job = _number(environ, JOB, group.jobs)
    slots = [slot for start, stop in group.slots for slot in range(start, stop)]
    return slots[job * group.nodes + _number(environ, INDEX, group.nodes)]


def _number(environ: Mapping[str, str], name: str, count: int) -> int:
    """Raises CannotStart."""
    text = environ.get(name, "")
    if not text.isdigit() or int(text) >= count:
        raise CannotStart("%s must be a number below %d, not %.100r" % (name, count, text))
    return int(text)


def serve_pod_command(words: Sequence[str], version: str) -> int:
    """`serve-pod FOLDER [key=FILE] [shared=FOLDER] [hosts=FILE]`. version: Muster's. Returns the
    exit code, see `server.UNDECIDED`."""
    if not words:
        sys.stderr.write("muster-node: an argument is needed: the server's folder\n")
        return 2
    folder, others = words[0], words[1:]
    program = os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        told = _told(program, os.environ, others)
    except (CannotStart, OSError, ValueError, TypeError) as error:
        sys.stderr.write("muster-node: this pod cannot start: %s\n" % error)
        return 1
    return keep_serving(os.path.realpath(folder), told, version)


def _after(start: str, words: Sequence[str]) -> str:
    """What follows the start of a word; "" if none begins so."""
    return next((word[len(start) :] for word in words if word.startswith(start)), "")


def _told(program: str, environ: Mapping[str, str], words: Sequence[str]) -> Mapping[str, str]:
    """What the server is told, in variables. words: of the command line, after the folder. Raises
    CannotStart, OSError, ValueError, TypeError."""
    text = read_regular(os.path.join(program, DESCRIPTION), _MOST_BYTES)
    description = Description(**json.loads(text))
    groups = {name: Group(**given) for name, given in description.groups.items()}
    slot, group = own_slot(groups, environ), groups[environ[GROUP]]
    settings = {
        **description.settings,
        "rank": slot,
        "amounts": group.amounts,
        "copy_log": group.pod_log,
        "hosts": _after(HOSTS, words),
    }
    if shared := _after(
        SHARED, words
    ):  # a folder for each user, as no other one can read or remove their files
        settings["archives"] = os.path.join(shared, "code-%d" % os.geteuid())
        settings["on_volume"] = True
    told = {SETTINGS: json.dumps(settings)}
    if key := _after(KEY, words):
        restarts = environ.get(RESTARTS, "")
        server = int(restarts) if restarts.isdigit() else 0
        told[TOKEN] = node_token(read_regular(key, _MOST_BYTES), server)
    return told
