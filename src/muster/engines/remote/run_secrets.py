"""The secrets of runs whose nodes are on other machines.

All nodes of a run share a token and certificates, for the programs that they run. By others, a
supervisor and nodes that dial it prove to each other who they are (`remote.listener`): the
supervisor by a certificate, whose authority nodes are started with, and each node by a token of its
own, from which those of the others cannot be found. What starts a node gives it this token, or the
key from which it makes it, and never the secret from which those of all nodes are made.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from muster.node.files import read_regular, replace_file
from muster.node.greeting import node_key, node_token
from muster.plan.model import RunPlan
from muster.storage.home import RunDir

_CERTIFICATES = ("ca.pem", "cert.pem", "key.pem")
#: The file with the bytes from which tokens of nodes are made.
_SECRET = "secret"


def run_token(run_dir: RunDir) -> str:
    """The run's secret: the same for each supervisor. Raises OSError."""
    try:
        return read_regular(run_dir.token).decode()
    except FileNotFoundError:
        token = os.urandom(16).hex()
        replace_file(run_dir.token, token.encode(), 0o600)
        return token


def certificates(plan: RunPlan, run_dir: RunDir, folder: Path) -> Mapping[str, str]:
    """The files with a node's certificates, by their paths in a folder of its host; none if the run
    needs none. They are made once, for the addresses that nodes have then. Raises OSError.

    plan: with the addresses of all nodes.
    """
    if not plan.tls:
        return {}
    if not all((run_dir.tls / name).exists() for name in _CERTIFICATES):
        from muster.storage.certificates import make_certificates

        make_certificates(run_dir.tls, plan.nodes)
    return {str(folder / name): (run_dir.tls / name).read_text() for name in _CERTIFICATES}


class ContactSecrets(Struct, frozen=True):
    """What a supervisor proves itself with to nodes that dial it, and knows them by. The same for
    each supervisor of a run."""

    #: The certificate of the authority, for nodes: PEM.
    authority: str
    #: Files with the supervisor's certificate and its key: PEM.
    certificate: Path
    key: Path
    #: Only supervisors know it.
    secret: bytes

    def key_of(self, rank: int) -> bytes:
        """The key of the node with this rank, for one that makes its own token."""
        return node_key(self.secret, rank)

    def token(self, rank: int, server: int = 0) -> str:
        """The token of the node with this rank. server: see `Arrivals.server`."""
        return node_token(self.key_of(rank), server)

    def is_token(self, token: str, rank: int, server: int = 0) -> bool:
        """Whether this is the token of the node with this rank. Takes the same time for all."""
        given = token.encode(errors="backslashreplace")
        return hmac.compare_digest(given, self.token(rank, server).encode())


def contact_secrets(run_dir: RunDir) -> ContactSecrets:
    """The secrets of a run, which are made once. Raises OSError."""
    folder = run_dir.contact
    if not (folder / _SECRET).exists():
        from muster.node.tls import supervisor_name
        from muster.storage.certificates import make_supervisor_certificate

        make_supervisor_certificate(folder, supervisor_name(run_dir.path.name))
        replace_file(folder / _SECRET, os.urandom(32), 0o600)  # the last: all others are there
    authority, certificate, key = (folder / name for name in _CERTIFICATES)
    secret = read_regular(folder / _SECRET)
    return ContactSecrets(authority.read_text(), certificate, key, secret)
