"""`muster oci-config`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.arguments import json_option
from muster.cli.output import print_json
from muster.cli.terminal import echo

if TYPE_CHECKING:
    from muster.client.oci_config import Profile

_FOLDER = Path("~/.oci")


@click.command("oci-config")
@click.option("--profile", metavar="NAME", default="MUSTER", show_default=True, help="Its name.")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="OCI's configuration file. Default: OCI_CONFIG_FILE, else ~/.oci/config.",
)
@click.option(
    "--key",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The private key; made if it is missing. Default: muster_api_key.pem beside the file.",
)
@click.option(
    "--auth",
    type=click.Choice(["api_key", "security_token"]),
    default="api_key",
    show_default=True,
    help="What signs: a key that is yours until it is deleted, or one of a session, which lasts an "
    "hour and can be refreshed for a day.",
)
@click.option("--replace", is_flag=True, help="Replace a profile with this name.")
@json_option()
def oci_config(
    profile: str,
    file: Path | None,
    key: Path | None,
    auth: str,
    replace: bool,
    as_json: bool,
) -> None:
    """Set up clients of OCI: the SDKs, the oci CLI, ADS.

    Writes a profile to OCI's configuration file, with a key whose public part the server gets, and
    prints what else they need. Code that is written for OCI then runs on this server with that
    profile.

    \b
    muster oci-config
    muster oci-config --profile DEFAULT --file ~/.oci/muster
    muster oci-config --auth security_token
    """
    from msgspec.structs import asdict

    from muster.client.connect import connect_accounts
    from muster.client.contexts import current_address
    from muster.client.oci_config import Choices, set_up

    given = file or Path(os.environ.get("OCI_CONFIG_FILE") or _FOLDER / "config")
    place = given.expanduser().absolute()
    key_file = None if key is None else key.expanduser().absolute()
    address, accounts = current_address(), connect_accounts()
    choices = Choices(place, profile, key_file, auth, replace)
    made = set_up(accounts, choices, None if address is None else address.url)
    if as_json:
        print_json(asdict(made))
        return
    _print(made, accounts.whoami().user)


def _print(made: Profile, user: str) -> None:
    echo(f"profile {made.profile} in {made.file} signs as {user}, with {made.key_file}", err=True)
    echo(f"compartment: {made.compartment}", err=True)
    if made.hosts:
        echo("these names do not resolve here; add them to DNS, or to /etc/hosts:", err=True)
        echo(f"  {made.hosts}", err=True)
    if made.endpoint:
        echo("the server has no domain (`muster server --oci-domain`), so name it:", err=True)
        echo(f"  service_endpoint={made.endpoint!r} (SDK), --endpoint (CLI)", err=True)
    echo("in this shell:", err=True)
    echo(f"export OCI_CONFIG_FILE={made.file} OCI_CLI_CONFIG_FILE={made.file}")
    echo(f"export OCI_CONFIG_PROFILE={made.profile} OCI_CLI_PROFILE={made.profile}")
    if made.auth != "api_key":
        echo(f"export OCI_CLI_AUTH={made.auth}")
    if made.ca:
        echo(f"export REQUESTS_CA_BUNDLE={made.ca} OCI_CLI_CERT_BUNDLE={made.ca}")
    if made.endpoint:
        echo(f"export OCI_CLI_ENDPOINT={made.endpoint} OCI_ODSC_SERVICE_ENDPOINT={made.endpoint}")
