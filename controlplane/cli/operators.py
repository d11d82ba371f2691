"""Operator commands for accounts, tokens, sessions, webhooks and the audit log."""

from collections.abc import Callable
from typing import Any

import click

from controlplane.cli.api import Api, ApiError
from controlplane.cli.columns import Column, Row, cores, memory
from controlplane.cli.console import confirmed
from controlplane.cli.options import NAME, YES, calls, lists, removes, with_options

STOP_TIMEOUT = 30.0  # Seconds. A stop takes at most 12 s; the rest is for a proxy that retries.
_NO_LIMIT = "none"


def _limit(name: str, number: Callable[[str], Any], what: str) -> Any:
    """Create an option that takes a number or `none`."""

    def limit(text: str) -> Any:
        return text if text == _NO_LIMIT else number(text)

    return click.option(name, type=limit, metavar=f"NUMBER|{_NO_LIMIT}", help=what)


_QUOTA = (
    _limit("--sessions", click.IntRange(min=0), "Concurrent sessions."),
    _limit("--cpu", click.FloatRange(min=0), "Cores."),
    _limit("--ram", click.FloatRange(min=0), "MiB."),
)
_PAGE = (
    click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True),
    click.option("--before", type=int, help="Continue where the previous page ended."),
)


def _given(limits: dict[str, Any]) -> dict[str, Any]:
    """Return the given limits; None means unlimited."""
    named = {key: limit for key, limit in limits.items() if limit is not None}
    return {key: None if limit == _NO_LIMIT else limit for key, limit in named.items()}


def _used(key: str, show: Callable[[Any], str]) -> Callable[[Row], str]:
    def shown(row: Row) -> str:
        quota = row["quota"][key]
        return f"{show(row['usage'][key])} of {'any' if quota is None else show(quota)}"

    return shown


def _ports(row: Row) -> str:
    return ", ".join(f"{host}->{container}" for container, host in row["port"].items())


ACCOUNTS: tuple[Column, ...] = (
    "name",
    ("SESSIONS", _used("sessions", str)),
    ("CPU", _used("cpu", cores)),
    ("RAM", _used("ram", memory)),
    "created",
)
TOKENS: tuple[Column, ...] = (
    "id",
    "account",
    "name",
    "created",
    "expires",
    "lastUsed",
    ("FROM", "lastUsedFrom"),
    "revoked",
    "scopes",
)
SESSIONS: tuple[Column, ...] = (
    "account",
    "id",
    "status",
    ("IMAGE", lambda row: f"{row['image']}:{row['tag']}"),
    "location",
    "agent",
    "host",
    ("PORTS", _ports),
    ("PLAYERS", "playerCount"),
    "created",
)
WEBHOOKS: tuple[Column, ...] = (
    "account",
    "id",
    "host",
    "enabled",
    "disabledBecause",
    "failingSince",
    "nextAttempt",
    "failedEvents",
    "created",
)
EVENTS: tuple[Column, ...] = (
    "sequence",
    "time",
    "kind",
    "account",
    "token",
    "address",
    "object",
    "data",
)


@click.group()
def account() -> None:
    """Accounts and their quotas."""


lists(account, "accounts", "operator/account", rows="accounts", columns=ACCOUNTS)
removes(
    account,
    "delete",
    "account",
    "Delete an account with its tokens, applications and ended sessions.",
    question="Delete the account {} and all that it owns?",
)


@account.command("create")
@NAME
@with_options(_QUOTA)
@calls("create the account")
def create_account(api: Api, name: str, **limits: Any) -> None:
    """Create an account and print its first token; limits that are not given are unlimited."""
    body = {"name": name, "quota": _given(limits)}
    api.print_token(api.call("POST", "operator", "account", body=body))


@account.command("quota")
@NAME
@with_options(_QUOTA)
@calls("set the quota")
def set_quota(api: Api, name: str, **limits: Any) -> None:
    """Change limits of an account; others stay, `none` removes a limit."""
    named = _given(limits)
    if not named:
        options = ", ".join(f"--{key}" for key in limits)
        raise click.UsageError(f"give at least one of {options}", click.get_current_context())
    quotas = api.read(
        api.call("GET", "operator", "account"),
        lambda content: {row["name"]: dict(row["quota"]) for row in content["accounts"]},
    )
    if name not in quotas:
        raise ApiError(f"cannot find account {name!r}")
    api.call("PUT", "operator", "account", name, body={"quota": quotas[name] | named})


@click.group()
def token() -> None:
    """API tokens of accounts and of operators."""


@token.command("list")
@click.option("--account", help="Of this account only; '' for operator tokens.")
@click.option("--all", "everything", is_flag=True, help="Include expired and revoked ones.")
@calls("list tokens")
def list_tokens(api: Api, account: str | None, *, everything: bool) -> None:
    """List tokens, without their secrets."""
    query = {"account": account, "all": everything}
    api.print_table(api.call("GET", "operator", "token", query=query), "tokens", TOKENS)


@token.command("create")
@NAME
@click.option("--scope", "scopes", multiple=True, required=True, help="Repeatable.")
@click.option("--account", help="Its account; default: an operator token.")
@click.option("--expires-after", "expires_after", help="A lifetime such as 12h or 1h30m.")
@calls("create the token")
def create_token(api: Api, **body: Any) -> None:
    """Create a token and print it."""
    api.print_token(api.call("POST", "operator", "token", body=body))


@token.command("revoke")
@click.argument("token_id", metavar="ID")
@YES
@calls("revoke the token")
def revoke_token(api: Api, token_id: str, *, yes: bool) -> None:
    """Revoke a token and all tokens created from it; print their ids."""
    confirmed(f"Revoke the token {token_id} and all tokens created from it?", yes=yes)
    content = api.call("DELETE", "operator", "token", token_id)
    api.print(content, lambda content: [str(ended) for ended in content["revoked"]])


@click.group()
def session() -> None:
    """Sessions of all accounts."""


@session.command("list")
@click.option("--account", help="Of this account only.")
@click.option("--agent", help="On this agent only.")
@click.option("--location", help="In this region only.")
@click.option("--image", help="Of this application only.")
@click.option("--all", is_flag=True, help="Include ended ones.")
@with_options(_PAGE)
@calls("list sessions")
def list_sessions(api: Api, **query: object) -> None:
    """List sessions, newest first."""
    api.print_table(api.call("GET", "operator", "session", query=query), "sessions", SESSIONS)


@session.command("stop")
@click.argument("account")
@click.argument("session_id", metavar="ID")
@calls("stop the session")
def stop_session(api: Api, account: str, session_id: str) -> None:
    """Stop a session of an account and wait for its end."""
    api.call("DELETE", "operator", "session", account, session_id, timeout=STOP_TIMEOUT)


@click.command()
@click.option("--account", help="Of this account only.")
@click.option("--kind", help="For example session.stop_requested, or session for all of them.")
@click.option("--object", help="The changed object.")
@click.option("--token", help="The id of the token that changed it.")
@with_options(_PAGE)
@calls("read the audit")
def audit(api: Api, **query: object) -> None:
    """Show the audit log, newest first."""
    api.print_table(api.call("GET", "operator", "audit", query=query), "events", EVENTS)


@click.group()
def webhook() -> None:
    """Webhooks of all accounts."""


@webhook.command("list")
@click.option("--account", help="Of this account only.")
@calls("list webhooks")
def list_webhooks(api: Api, **query: object) -> None:
    """List webhooks, and which of them fail."""
    api.print_table(api.call("GET", "operator", "webhook", query=query), "webhooks", WEBHOOKS)


COMMANDS = (account, token, session, webhook, audit)
