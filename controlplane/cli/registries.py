"""Operator commands for registries."""

import sys
from pathlib import Path

import click

from controlplane.cli.api import Api
from controlplane.cli.columns import Column
from controlplane.cli.options import NAME, calls, lists, removes

_STDIN = Path("-")
REGISTRIES: tuple[Column, ...] = (
    "name",
    "address",
    "aliases",
    "username",
    "private",
    ("IN SETTINGS", "declared"),
    "applications",
)


@click.group()
def registry() -> None:
    """Image registries."""


lists(registry, "registries", "operator/registry", rows="registries", columns=REGISTRIES)
removes(registry, "delete", "registry", "Delete a registry that nothing uses.")


@registry.command("set")
@NAME
@click.argument("address", metavar="HOST[:PORT]")
@click.option("--alias", "aliases", multiple=True, help="Another name for it; repeatable.")
@click.option("--username", help="User name; default: anonymous.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="File with the password; - is standard input. Default: keep the password.",
)
@click.option(
    "--auth-host",
    "auth_hosts",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Another host that may issue its tokens; repeatable.",
)
@click.option("--private", is_flag=True, help="Allow addresses that are not public.")
@click.option(
    "--registry-ca-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Certificates (PEM) to trust for the registry instead of the system's.",
)
@calls("set the registry")
def set_registry(
    api: Api,
    name: str,
    *,
    auth_hosts: tuple[str, ...],
    password_file: Path | None,
    registry_ca_file: Path | None,
    **more: object,
) -> None:
    """Create or replace a registry."""
    if password_file == _STDIN == click.get_current_context().params["token_file"]:
        raise _unusable("--password-file", "standard input is used for the token")
    password = _read("--password-file", password_file)
    body = {
        **more,
        "password": None if password is None else password.removesuffix("\n"),
        "authHosts": auth_hosts,
        "ca": _read("--registry-ca-file", registry_ca_file),
    }
    api.call("PUT", "operator", "registry", name, body=body)


def _read(option: str, file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return sys.stdin.read() if file == _STDIN else file.read_text("utf-8")
    except OSError as error:
        raise _unusable(option, f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:  # its message would quote the content
        raise _unusable(option, f"{file} is not UTF-8") from None


def _unusable(option: str, why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint=f"'{option}'")
