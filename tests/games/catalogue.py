"""The games of docs/examples/games, and what each is expected to do."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.games.clients import (
    bzflag,
    crossfire,
    cube2,
    freeciv,
    luanti,
    mumble,
    openarena,
    openttd,
    teeworlds,
    wesnoth,
)
from tests.games.clients.network import Played, Ports
from tests.support.harness import ROOT

FOLDER = ROOT / "docs" / "examples" / "games"


@dataclass(frozen=True)
class Game:
    """A server of Debian, and the end that a stop brings it."""

    name: str  # Its folder's name
    package: str
    ports: tuple[str, ...]  # Such as `udp/8303`, in the order in which it declares them
    play: Callable[[str, Ports], Played]
    facts: dict[str, object]  # Some of what it must report; `…` is the session's id
    logs: str  # Part of a line that it logs because of the player
    exit_code: int  # After a stop
    args: tuple[str, ...] = ()
    saves: str = ""  # A file or folder that a stop must leave
    saved: str = ""  # Part of the name of what is in `saves`
    ram: int = 256
    in_gate: bool = False
    timeout: int = 900  # Seconds; the first one has to import and push the base image, too

    @property
    def folder(self) -> Path:
        return FOLDER / self.name


GAMES = (
    Game(
        "teeworlds",
        "teeworlds-server",
        ("udp/8303",),
        teeworlds.play,
        {"version": "0.7.5", "name": "…", "map": "dm1", "mode": "DM", "players": 1},
        "player is ready. ClientID=0",
        143,
        args=("sv_name ${TILTYARD_SESSION_ID}", "sv_external_port ${TILTYARD_PORT_UDP_8303}"),
        in_gate=True,
    ),
    Game(
        "openarena",
        "openarena-server",
        ("udp/27960",),
        openarena.play,
        {"challenge": "tiltyard", "name": "…", "map": "oa_dm1", "players": 0, "slots": 8},
        "Server: oa_dm1",
        1,
        args=("+set", "sv_hostname", "${TILTYARD_SESSION_ID}"),
    ),
    Game(
        "luanti",
        "minetest-server",
        ("udp/30000",),
        luanti.play,
        {"serialization": 29, "protocol": 41, "first login by SRP": True},
        "listening on 0.0.0.0:30000",
        0,
        saves="/home/game/world",
        saved="world.mt",
    ),
    Game(
        "bzflag",
        "bzflag-server",
        ("tcp/5154", "udp/5154"),
        bzflag.play,
        {"version": "BZFS0221", "slots": 8, "players": 0},
        "Player ann [0] has joined",
        0,
        in_gate=True,
    ),
    Game(
        "freeciv",
        "freeciv-server",
        ("tcp/5556",),
        freeciv.play,
        {"message": "ann Welcome", "capability": "+Freeciv-3.0-network"},
        "Game saved as",
        0,
        saves="/home/game",
        saved="-interrupted.sav",
    ),
    Game(
        "wesnoth",
        "wesnoth-1.16-server",
        ("tcp/15000",),
        wesnoth.play,
        {"version": "1.16.9", "players": 1},
        "has logged on",
        143,
    ),
    Game(
        "cube2",
        "cube2-server",
        ("udp/28785", "udp/28786"),
        cube2.play,
        {"protocol": 260, "slots": 8, "players": 0, "name": "…"},
        "dedicated server started",
        143,
        args=("-n${TILTYARD_SESSION_ID}",),
    ),
    Game(
        "mumble",
        "mumble-server",
        ("tcp/64738", "udp/64738"),
        mumble.play,
        {"version": "1.3.4", "players": 0, "slots": 8, "users": 1},
        "ann(-1)> Authenticated",
        0,
        saves="/var/lib/mumble-server/mumble-server.sqlite",
        saved="mumble-server.sqlite",
        in_gate=True,
    ),
    Game(
        "openttd",
        "openttd",
        ("tcp/3979", "udp/3979"),
        openttd.play,
        {"name": "Tiltyard", "version": "13.0", "slots": 8, "map": "256 x 256"},
        "Client connected from",
        0,
        saves="/home/game/save/autosave",
        saved="exit.sav",
    ),
    Game(
        "crossfire",
        "crossfire-server",
        ("tcp/13327",),
        crossfire.play,
        {"name": "Crossfire Server", "version": "1023", "clients": "1029"},
        "Connection from",
        0,
        saves="/var/games/crossfire",
        saved="accounts",
    ),
)
