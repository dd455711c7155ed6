"""What a run starts from besides its spec: it comes with the request, since one process may serve
many submitters. Only the edges (client, commands) make one from the process that they run in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.unix_account import UnixAccount

if TYPE_CHECKING:
    from muster.plan.model import MountPlan, PrincipalPlan

#: Variables that nodes elsewhere get from the submitter's environment without being asked for.
_SENT = ("LANG", "LANGUAGE", "TZ")


class Submission(Struct, frozen=True):
    """The place that a request to start something was made from."""

    #: The variables that the nodes' environment starts from, and git and installers run with.
    environ: Mapping[str, str]
    #: The Python interpreter of the submitter, which runs its programs.
    python: str
    #: The base of relative paths.
    folder: Path
    #: Whether paths in specs name files of the submitter on this machine, which may be read.
    has_files: bool = True
    #: Whether URLs may lead to addresses that are not of the public internet.
    allow_private_addresses: bool = True
    #: The id of the run or schedule that is created, so that a request which is repeated creates
    #: one; None for a new id each time.
    created_id: str | None = None
    #: Whom the nodes' programs run as; None: the user of this process.
    account: UnixAccount | None = None
    #: Variables of OCI that name the run, its job and so on, where the OCI API has created it; they
    #: replace those of this machine.
    oci_names: Mapping[str, str] = {}
    #: What nodes find besides what the job mounts: the event that has started the run, and the
    #: outputs of the run before.
    inputs: tuple[MountPlan, ...] = ()
    #: How runs act at the server that starts them; None: they do not.
    principal: PrincipalPlan | None = None
    #: Whether runs that were requested from other machines have Unix accounts of their owners.
    separate_owners: bool = False

    @property
    def oci_job(self) -> str:
        """The OCID of the job of the OCI API that is started; "" if none is."""
        return self.oci_names.get("JOB_OCID", "")


def of_this_process() -> Submission:
    """The submission of a user of this process."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:  # deleted; a relative path is then reported as missing
        folder = Path(os.environ.get("PWD", "/"))
    return Submission(dict(os.environ), sys.executable, folder)


def sent_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that are sent along to where a run starts later, or
    elsewhere."""
    return {
        name: value for name, value in environ.items() if name in _SENT or name.startswith("LC_")
    }
