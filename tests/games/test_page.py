"""The table of docs/games.md."""

from tests.games.catalogue import FOLDER, GAMES
from tests.games.page import PAGE, Row, rows, with_row

_ROW = Row(
    game="pong",
    package="pong-server",
    version="1.0-1",
    ports=("udp/1972", "tcp/1972"),
    ready=1.26,
    answered=0.129,
    joined="",
    exit_code=0,
    saved="save/pong",
    memory=7 * 2**20,
    date="2026-11-29",
)
_LINE = (
    "| [pong](examples/games/pong/Dockerfile) | `pong-server` 1.0-1 | udp/1972, tcp/1972 | 1.3 s"
    " | 0.13 s | only asked | 0 | `save/pong` | 7 MiB | 2026-11-29 |"
)
_OTHER = _LINE.replace("pong", "chess")
_PAGE = "before\n<!-- written by make test-games -->\n<!-- by hand again -->\nafter\n"


def test_writes_a_row_between_the_marks() -> None:
    written = with_row(_PAGE, _ROW)
    assert rows(written) == {"pong": _LINE}
    assert written.startswith("before\n<!-- written")
    assert written.endswith("by hand again -->\nafter\n")


def test_replaces_the_row_of_a_game_that_was_played_again() -> None:
    old = _LINE.replace("1.0-1", "0.9-1")
    assert rows(with_row(with_row(_PAGE, _ROW).replace(_LINE, old), _ROW))["pong"] == _LINE


def test_keeps_the_rows_of_games_that_were_not_played() -> None:
    written = with_row(_PAGE, _ROW).replace(_LINE, _OTHER)
    assert rows(with_row(written, _ROW)) == {"chess": _OTHER, "pong": _LINE}


def test_the_page_has_a_row_of_each_dockerfile() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/Dockerfile")}
    assert set(rows(PAGE.read_text("utf-8"))) == folders


def test_each_dockerfile_is_played() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/Dockerfile")}
    assert {game.name for game in GAMES} == folders


def test_each_dockerfile_builds_on_the_published_debian() -> None:
    for path in FOLDER.glob("*/Dockerfile"):
        lines = path.read_text("utf-8").splitlines()
        assert lines[1] == "ARG BASE=debian:bookworm-slim", path
        assert lines[2] == "FROM $BASE", path
