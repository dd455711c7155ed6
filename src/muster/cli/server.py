"""`muster server`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from muster.cli.arguments import json_option
from muster.cli.terminal import echo
from muster.errors import EXIT_RUN_FAILED, InvalidInput, Problem

if TYPE_CHECKING:
    from muster.server.settings import Settings


@click.group(invoke_without_command=True)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    show_default=True,
    help="Address to listen on. Others than those of this machine need --tls-cert or --plain.",
)
@click.option(
    "--port", default=8431, type=click.IntRange(1, 65535), show_default=True, help="Port."
)
@click.option(
    "--database-url",
    metavar="URL",
    help="Keep the records in PostgreSQL: postgresql+psycopg://USER@HOST/NAME. Stored in "
    "MUSTER_HOME, for all processes that use it. Default: a SQLite file there.",
)
@click.option("--tls-cert", metavar="FILE", help="The server's certificate and its chain, in PEM.")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, in PEM.")
@click.option(
    "--oci-domain",
    metavar="DOMAIN",
    help="Serve clients of OCI as region DOMAIN, with TLS: `muster oci-config` sets them up. "
    "Without --tls-cert, the server makes a certificate.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="Listen without TLS on an address that others can reach, such as behind a proxy.",
)
@click.pass_context
def server(
    ctx: click.Context,
    host: str,
    port: int,
    database_url: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    oci_domain: str | None,
    plain: bool,
) -> None:
    """Serve jobs and runs to a team, over HTTP.

    The records and files are those of MUSTER_HOME. At its first start, the server makes a token
    for you and prints it once. SIGTERM stops the server; runs continue, and another server, or the
    next start, takes them over.

    \b
    muster server
    muster server --host 0.0.0.0 --oci-domain jobs.example.org
    muster server --port 8431 --database-url postgresql+psycopg://muster@db/muster
    """
    if ctx.invoked_subcommand is not None:
        return
    _check_exposure(host, tls_cert, tls_key, plain=plain or oci_domain is not None)
    serve, settings = _import_server()
    listens = settings(host, port, tls_cert, tls_key, oci_domain)
    serve(listens, database_url, partial(echo, err=True), partial(echo, secrets=True))


@server.command("doctor")
@json_option()
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check whether a server can work, and how safely.

    It would be one of this MUSTER_HOME. Exit code 1: something is wrong. Give --host and --port
    before `doctor` if they are not the default ones.

    \b
    muster server doctor
    muster server --port 9000 doctor
    """
    from msgspec.structs import asdict

    from muster.cli.findings import print_findings
    from muster.cli.output import print_json

    _, settings = _import_server()
    from muster.server.doctor import examine
    from muster.storage.home import default_home

    given = ctx.parent.params if ctx.parent is not None else {}
    names = ("host", "port", "tls_cert", "tls_key", "oci_domain")
    findings = [*examine(default_home(), settings(**{name: given[name] for name in names}))]
    if as_json:
        print_json([asdict(one) for one in findings])
    else:
        print_findings(findings)
    if not all(one.works for one in findings):
        ctx.exit(EXIT_RUN_FAILED)


@server.group("instance")
def instance() -> None:
    """Hosts that act as themselves (OCI: instance principals).

    Commands for the machine of the server; `metadata` is for the host.
    """


@instance.command("add")
@click.argument("name")
@click.argument("folder", type=click.Path(file_okay=False))
@click.option("--project", default="default", show_default=True, help="The project that it is in.")
@click.option("--user", required=True, help="Who answers for it.")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="ADDRESS",
    help="An address or a network, as the server sees it, from which alone the host can be used.",
)
@click.pass_context
def add_instance(
    ctx: click.Context,
    name: str,
    folder: str,
    project: str,
    user: str,
    addresses: tuple[str, ...],
) -> None:
    """Register a host, and write its certificate to a folder.

    Copy the folder to the host, and run `muster server instance metadata FOLDER` there. A host that
    is registered again gets another certificate; its former one is of no use any more.

    \b
    muster server instance add gpu-7 folder/ --user ana
    muster server instance add gpu-7 folder/ --user ana --address 10.0.0.7
    muster server --oci-domain jobs.example.org instance add gpu-7 folder/ --user ana
    """
    from muster.server.instances import add

    assert ctx.parent is not None and ctx.parent.parent is not None, "it is a command of a command"
    server = ctx.parent.parent.params
    made = add(name, project, user, folder, server["oci_domain"], server["port"], addresses)
    echo(made)


@instance.command("remove")
@click.argument("name")
def remove_instance(name: str) -> None:
    """Remove a host.

    Its certificate and its tokens are of no use any more.

    \b
    muster server instance remove gpu-7
    """
    from muster.server.instances import remove

    remove(name)


@instance.command("metadata")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--port", default=8432, type=click.IntRange(1, 65535), show_default=True, help="Port."
)
@click.option(
    "--url", help="Of the server, to renew the certificate there. Default: by the server's domain."
)
def serve_metadata(folder: str, port: int, url: str | None) -> None:
    """Serve a host's certificate to clients of OCI here.

    It serves them on this host until it is interrupted. The certificate is renewed every six hours.

    \b
    muster server instance metadata gpu-7/
    export OCI_METADATA_BASE_URL=http://127.0.0.1:8432/opc/v2
    """
    from pathlib import Path
    from threading import Event, Thread

    from muster.server.certificate_renewal import auth_url, keep_renewed
    from muster.server.metadata import PREFIX, metadata_server

    place = Path(folder)
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidInput(Problem("--url", f"must begin with https://, not {url!r}"))
    try:
        server = metadata_server(place, port)
    except OSError as error:
        text = f"cannot listen on port {port}: {error.strerror}"
        raise InvalidInput(Problem("--port", text, "choose another one")) from None
    with server as made:
        echo(f"export OCI_METADATA_BASE_URL=http://127.0.0.1:{port}{PREFIX}")
        if server_url := (url or auth_url(place) or "").rstrip("/"):
            given = (place, server_url, Event(), partial(echo, err=True))
            Thread(target=keep_renewed, args=given, daemon=True).start()
        else:
            why = "the certificate is not renewed: the server has no domain, and --url is missing"
            echo(why, err=True)
        made.serve_forever()


def _check_exposure(host: str, cert: str | None, key: str | None, *, plain: bool) -> None:
    """Raises InvalidInput for addresses that tokens would be sent to in plain text."""
    if (cert is None) != (key is None):
        flag, other = ("--tls-key", "--tls-cert") if cert is None else ("--tls-cert", "--tls-key")
        raise InvalidInput(Problem(other, f"is needed with {flag}"))
    from muster.addresses import is_loopback

    if plain or cert is not None or is_loopback(host):
        return
    text = f"others can reach {host}, and tokens would be sent there without encryption"
    hint = "give --tls-cert and --tls-key, or --plain if a proxy before it encrypts"
    raise InvalidInput(Problem("--host", text, hint))


def _import_server() -> tuple[Callable[..., None], type[Settings]]:
    """The server, which needs packages that other commands do not. Raises InvalidInput."""
    try:
        from muster.server.command import serve
        from muster.server.settings import Settings
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("muster"):
            raise
        hint = "pip install 'muster-jobs[server]'"
        text = f"the server needs the package {error.name}, which is not installed"
        raise InvalidInput(Problem("", text, hint)) from None
    return serve, Settings
