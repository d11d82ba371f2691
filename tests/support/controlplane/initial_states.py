"""The state directory that the first start creates, made once per process and copied."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from controlplane.access.accounts import InitialTokens
from controlplane.app.control_plane import ControlPlane
from controlplane.settings.model import Config

ACCOUNTS = ("alice", "bob")


@dataclass(frozen=True)
class _InitialState:
    tokens: InitialTokens
    files: dict[str, bytes]


_made: list[_InitialState] = []


async def initialise(config: Config) -> InitialTokens:
    """Create the accounts alice and bob; return their tokens.

    The database, keys and tokens are the same in each state directory of a process, unless the
    directory exists.
    """
    if config.state_dir.exists():
        return await ControlPlane(config).initialise(ACCOUNTS)
    if not _made:
        _made.append(await _initialise())
    state = _made[0]
    _write(state.files, config.state_dir)
    return InitialTokens(dict(state.tokens.accounts), state.tokens.operator_token)


def _write(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for name, content in files.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)


async def _initialise() -> _InitialState:
    with tempfile.TemporaryDirectory() as folder:
        state_dir = Path(folder) / "state"
        tokens = await ControlPlane(Config(state_dir=state_dir)).initialise(ACCOUNTS)
        files = {path.name: path.read_bytes() for path in state_dir.iterdir()}
        return _InitialState(tokens, files)
