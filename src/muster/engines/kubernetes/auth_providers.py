"""Logins that are renewed by whoever reads them, and written back into their file: the
`auth-provider` of a user, for OpenID Connect. Plug-ins have taken the place of the others.

The `kubernetes` client does it, in a process of its own, which is killed if the issuer says
nothing. Muster installs the client nowhere: few have such a user.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec

from muster.engines.kubernetes.kubeconfig import Context, absolute
from muster.engines.kubernetes.plugins import Program, output_of
from muster.engines.kubernetes.refusals import CannotCall


def provider_token(files: str, context: Context) -> str:
    """The token of a context's user. Raises CannotCall."""
    user = context.user
    if find_spec("kubernetes") is None:
        raise user.wrong("auth-provider", "needs the Python client: pip install kubernetes")
    # not from the folder in which it runs, where there may be modules of any name
    argv = [sys.executable, "-P", "-m", __name__, absolute(files), context.user_name]
    folder = user.file.absolute().parent
    try:
        # what it says may quote a token
        output = output_of(Program("the client", argv, os.environ, folder, says_why=False))
    except CannotCall as error:
        if error.refused:
            why = "gives no token: log in with kubectl, and try again"
        else:
            why = "gives no token in time: see whether its issuer answers kubectl"
        found = user.wrong("auth-provider", why)
        found.refused = error.refused
        raise found from None
    return output.decode(errors="replace")


def _renewed(files: str, user_name: str) -> str:
    """The same, in that process. Raises whatever the client does."""
    from kubernetes.client import Configuration
    from kubernetes.config import kube_config as client

    merger = client.KubeConfigMerger(files)
    merged = merger.config
    # a cluster without certificates, and a user's keys are not read without TLS: the client would
    # write them into files
    value = {
        **merged.value,
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": user_name}}],
        "clusters": [{"name": "it", "cluster": {"server": "http://it"}}],
    }
    loader = client.KubeConfigLoader(
        client.ConfigNode(merged.name, value, merged.path),
        active_context="it",
        config_base_path=None,
        config_persister=merger.save_changes,
    )
    configuration = Configuration()
    loader.load_and_set(configuration)
    return str(configuration.auth_settings()["BearerToken"]["value"]).removeprefix("Bearer ")


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        token = _renewed(*sys.argv[1:])
    sys.stdout.write(token)
