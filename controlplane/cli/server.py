"""What `serve` and `init` do with the whole program: run it, or make what its first start needs.

It is apart from `cli`, which imports it for these two commands only: an operator's command needs
neither the database nor gRPC, and importing them takes longer than its call.
"""

import asyncio
import logging
import signal
import time

import click

from controlplane.accounts import InitialTokens, first_tokens
from controlplane.app import DEFAULT_ACCOUNT, ControlPlane
from controlplane.cli.console import echo
from controlplane.config import Config
from controlplane.errors import StoreError

_log = logging.getLogger(__name__)


def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT, after a first start where there was none.

    Raises:
        BaseExceptionGroup: What ended it, such as a StoreError or an OSError.
    """
    first_start(config)
    asyncio.run(_serve(config))


def first_start(config: Config) -> None:
    """Make what `init` makes, and leave the tokens where only the owner can read them.

    They are in a draft before the database has them. A draft that is still there is of a first
    start that broke off: it is taken up again with the same tokens.

    Raises:
        StoreError: The draft or the database cannot be opened.
    """
    path = config.state_dir / "initial-tokens.json"
    draft = path.with_suffix(".draft")
    if config.database.exists() and not draft.exists():
        return
    try:
        tokens = InitialTokens.load(draft)
        if tokens is None:
            tokens = first_tokens(DEFAULT_ACCOUNT)
            tokens.save(draft)
    except OSError as error:
        raise StoreError(f"cannot open {draft}: because {error}") from error
    if asyncio.run(ControlPlane(config).initialise_with(tokens)):
        draft.replace(path)
        _log.info("made the database; the first tokens are in %s", path)
    else:
        draft.unlink()


def initialise(
    config: Config, accounts: tuple[str, ...], *, new_operator_token: bool
) -> InitialTokens:
    """Make the database, and the accounts and the operator's token that it lacks.

    No account that is named means the default one, or none with `new_operator_token`, which makes
    an operator's token in any case.

    Raises:
        StoreError: The database cannot be opened.
    """
    names = accounts or (() if new_operator_token else (DEFAULT_ACCOUNT,))
    control_plane = ControlPlane(config)
    making = control_plane.initialise(names, new_operator_token=new_operator_token)
    return asyncio.run(making)


def print_tokens(config: Config, tokens: InitialTokens, *, as_json: bool) -> None:
    """Print tokens that the database has; keep them for the owner when that fails.

    Raises:
        click.ClickException: They are in a file that it names.
    """
    try:
        echo(tokens.to_json() if as_json else _for_people(tokens))
    except OSError as error:
        kept = config.state_dir / f"unprinted-tokens-{time.time_ns()}.json"
        tokens.save(kept)
        raise click.ClickException(f"cannot print: because {error}; see {kept}") from error


async def _serve(config: Config) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await ControlPlane(config).serve(stopping)


def _for_people(tokens: InitialTokens) -> str:
    lines = [f"account {name}: {token}" for name, token in tokens.accounts.items()]
    if tokens.operator_token is not None:
        lines.append(f"operator: {tokens.operator_token}")
    return "\n".join(lines or ["nothing to make: everything is there"])
