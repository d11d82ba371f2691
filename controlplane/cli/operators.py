"""Operator commands for accounts, tokens, sessions and the audit log. Each calls the API."""

from collections.abc import Callable
from typing import Any

import click

from controlplane.cli.api_client import STOP_TIMEOUT, ApiError
from controlplane.cli.columns import Column, Row, as_json, cores, field, memory, of, time, words
from controlplane.cli.options import YES, Api, calls, confirmed

_NO_LIMIT = "none"


def _limit(name: str, number: Callable[[str], Any], what: str) -> Any:
    """Make an option that takes a number or `none`."""

    def limit(text: str) -> Any:
        return text if text == _NO_LIMIT else number(text)

    return click.option(name, type=limit, metavar=f"NUMBER|{_NO_LIMIT}", help=what)


_QUOTA = (
    _limit("--sessions", click.IntRange(min=0), "Sessions at one time."),
    _limit("--cpu", click.FloatRange(min=0), "Cores."),
    _limit("--ram", click.FloatRange(min=0), "MiB."),
)
_PAGE = (
    click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True),
    click.option("--before", type=int, help="Continue where the previous page ended."),
)


def _options(options: tuple[Any, ...]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _named(limits: dict[str, Any]) -> dict[str, Any]:
    """Return the given limits; null is no limit."""
    named = {key: limit for key, limit in limits.items() if limit is not None}
    return {key: None if limit == _NO_LIMIT else limit for key, limit in named.items()}


def _used(key: str, shown: Callable[[Any], str]) -> Column:
    """Show usage and quota."""

    def column(row: Row) -> str:
        quota = row["quota"][key]
        return of(shown(row["usage"][key]), "any" if quota is None else shown(quota))

    return column


def _ports(ports: dict[str, int]) -> str:
    return words(f"{host}->{container}" for container, host in ports.items())


ACCOUNTS: dict[str, Column] = {
    "NAME": field("name"),
    "SESSIONS": _used("sessions", str),
    "CPU": _used("cpu", cores),
    "RAM": _used("ram", memory),
    "CREATED": field("created", time),
}
TOKENS: dict[str, Column] = {
    "ID": field("id"),
    "ACCOUNT": field("account"),
    "NAME": field("name"),
    "CREATED": field("created", time),
    "EXPIRES": field("expires", time),
    "LAST USED": field("lastUsed", time),
    "FROM": field("lastUsedFrom"),
    "REVOKED": field("revoked", time),
    "SCOPES": field("scopes", words),
}
SESSIONS: dict[str, Column] = {
    "ACCOUNT": field("account"),
    "ID": field("id"),
    "STATUS": field("status"),
    "IMAGE": lambda row: f"{row['image']}:{row['tag']}",
    "LOCATION": field("location"),
    "AGENT": field("agent"),
    "HOST": field("host"),
    "PORTS": field("port", _ports),
    "PLAYERS": field("playerCount"),
    "CREATED": field("created", time),
}
EVENTS: dict[str, Column] = {
    "SEQUENCE": field("sequence"),
    "TIME": field("time", time),
    "KIND": field("kind"),
    "ACCOUNT": field("account"),
    "TOKEN": field("token"),
    "ADDRESS": field("address"),
    "OBJECT": field("object"),
    "DATA": field("data", as_json),
}


@click.group()
def account() -> None:
    """Accounts and their quotas."""


@account.command("list")
@calls("list accounts")
def list_accounts(api: Api) -> None:
    """List all accounts with usage and quota."""
    api.print_table(api.get("operator", "account"), "accounts", ACCOUNTS)


@account.command("create")
@click.argument("name")
@_options(_QUOTA)
@calls("create the account")
def create_account(api: Api, name: str, **limits: Any) -> None:
    """Create an account and print its first token; limits that are not given are unlimited."""
    reply = api.post("operator", "account", body={"name": name, "quota": _named(limits)})
    api.print_token(reply, name)


@account.command("quota")
@click.argument("name")
@_options(_QUOTA)
@calls("set the quota")
def set_quota(api: Api, name: str, **limits: Any) -> None:
    """Change limits of an account; others stay, `none` removes a limit."""
    named = _named(limits)
    if not named:
        options = ", ".join(f"--{key}" for key in limits)
        raise click.UsageError(f"give what to change: {options}", click.get_current_context())
    quotas = api.read(
        api.get("operator", "account"),
        lambda content: {row["name"]: dict(row["quota"]) for row in content["accounts"]},
    )
    if name not in quotas:
        raise ApiError(f"cannot find account {name!r}")
    api.put("operator", "account", name, body={"quota": quotas[name] | named})


@account.command("delete")
@click.argument("name")
@YES
@calls("delete the account")
def delete_account(api: Api, name: str, *, yes: bool) -> None:
    """Delete an account with its tokens, applications and ended sessions."""
    confirmed(f"Delete the account {name} with all that is its own?", yes=yes)
    api.delete("operator", "account", name)


@click.group()
def token() -> None:
    """API tokens of accounts and of operators."""


@token.command("list")
@click.option("--account", help="Of this account only; '' for operator tokens.")
@click.option("--all", "everything", is_flag=True, help="Include expired and revoked ones.")
@calls("list tokens")
def list_tokens(api: Api, account: str | None, *, everything: bool) -> None:
    """List tokens, without their secrets."""
    reply = api.get("operator", "token", account=account, all=everything)
    api.print_table(reply, "tokens", TOKENS)


@token.command("create")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, required=True, help="Repeatable.")
@click.option("--account", help="Its account; default: an operator token.")
@click.option("--expires-after", help="A lifetime such as 12h or 1h30m.")
@calls("create the token")
def create_token(
    api: Api, name: str, scopes: tuple[str, ...], account: str | None, expires_after: str | None
) -> None:
    """Create a token and print it."""
    body = {"name": name, "scopes": scopes, "account": account, "expires_after": expires_after}
    api.print_token(api.post("operator", "token", body=body), account)


@token.command("revoke")
@click.argument("token_id", metavar="ID")
@YES
@calls("revoke the token")
def revoke_token(api: Api, token_id: str, *, yes: bool) -> None:
    """Revoke a token and all tokens created from it; print their ids."""
    confirmed(f"Revoke the token {token_id} and all that were made from it?", yes=yes)
    reply = api.delete("operator", "token", token_id)
    api.print(reply, lambda content: [str(ended) for ended in content["revoked"]])


@click.group()
def session() -> None:
    """Sessions of all accounts."""


@session.command("list")
@click.option("--account", help="Of this account only.")
@click.option("--agent", help="On this agent only.")
@click.option("--location", help="In this region only.")
@click.option("--image", help="Of this application only.")
@click.option("--all", "everything", is_flag=True, help="Include ended ones.")
@_options(_PAGE)
@calls("list sessions")
def list_sessions(api: Api, *, everything: bool, **query: str | int | None) -> None:
    """List sessions, newest first."""
    reply = api.get("operator", "session", all=everything, **query)
    api.print_table(reply, "sessions", SESSIONS)
    api.note_more(reply)


@session.command("stop")
@click.argument("account")
@click.argument("session_id", metavar="ID")
@calls("stop the session")
def stop_session(api: Api, account: str, session_id: str) -> None:
    """Stop a session of an account and wait for its end."""
    api.delete("operator", "session", account, session_id, timeout=STOP_TIMEOUT)


@click.command()
@click.option("--account", help="Of this account only.")
@click.option("--kind", help="For example session.stop, or session for all of them.")
@click.option("--object", help="The changed object.")
@click.option("--token", help="The id of the token that changed it.")
@_options(_PAGE)
@calls("read the audit")
def audit(api: Api, **query: str | int | None) -> None:
    """Show the audit log, newest first."""
    reply = api.get("operator", "audit", **query)
    api.print_table(reply, "events", EVENTS)
    api.note_more(reply)


COMMANDS = (account, token, session, audit)
