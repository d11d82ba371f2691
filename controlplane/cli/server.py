"""Commands that run on the control plane's machine. Slow to import."""

import asyncio
import gc
import signal

from controlplane.access.accounts import InitialTokens
from controlplane.app.control_plane import DEFAULT_ACCOUNT, ControlPlane
from controlplane.domain.errors import StoreError
from controlplane.http.errors import REFUSED
from controlplane.sessions.start import NOT_STARTED
from controlplane.settings.model import Config
from controlplane.state_dir.lock import serving, using
from controlplane.state_dir.private_files import write_private
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.systemd import Notifier, read_supervision
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

LIMITED = frozenset({REFUSED, NOT_STARTED})
"""Rate-limited events below warning level, which clients can cause."""

COLLECT_AFTER = 50_000
"""Threshold of the first GC generation. High: most allocations are long-lived fleet state."""


def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT; initialise the state first if there is none.

    Raises:
        BaseExceptionGroup: Fatal errors, such as a StoreError or an OSError.
    """
    with serving(config.state_dir):
        first_start(config)
        collect_rarely()
        asyncio.run(_serve(config))


def collect_rarely() -> None:
    """Set up Python's cyclic garbage collection for this process, for good."""
    gc.freeze()  # imported modules are never garbage
    gc.set_threshold(COLLECT_AFTER)


def first_start(config: Config) -> None:
    """Initialise the state if there is none, and write the tokens to a private file.

    Raises:
        StoreError: The database cannot be opened, or the file cannot be written.
    """
    if config.database.exists():
        return
    tokens = asyncio.run(ControlPlane(config).initialise((DEFAULT_ACCOUNT,)))
    path = config.state_dir / "initial-tokens.json"
    try:
        write_private(path, f"{tokens.to_json()}\n".encode())
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error
    log.info("created the database and the first tokens", path=str(path))


def initialise(
    config: Config, accounts: tuple[str, ...], *, new_operator_token: bool
) -> InitialTokens:
    """Create the database, missing accounts, and an operator token if missing or requested.

    `accounts` defaults to the default account, or to none with `new_operator_token`.
    """
    names = accounts or (() if new_operator_token else (DEFAULT_ACCOUNT,))
    control_plane = ControlPlane(config)
    with using(config.state_dir):
        making = control_plane.initialise(names, new_operator_token=new_operator_token)
        return asyncio.run(making)


async def _serve(config: Config) -> None:
    if config.failpoint:
        log.warning("a failpoint is active", name=config.failpoint)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    control_plane = ControlPlane(config)
    notifier = Notifier(read_supervision())
    tasks = TaskOwner[None]()
    tasks.start(notifier.follow(control_plane.listening, stopping), "service manager")
    try:
        await control_plane.serve(stopping)
    finally:
        await tasks.close()


def for_people(tokens: InitialTokens) -> str:
    """Format new tokens, one line each."""
    lines = [f"account {name}: {token}" for name, token in tokens.accounts.items()]
    if tokens.operator_token is not None:
        lines.append(f"operator: {tokens.operator_token}")
    return "\n".join(lines or ["nothing to create: everything exists"])
