"""One deployment for all games, and the table of those that were played."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.demo_game import Image
from tests.docker.stack import Stack, a_stack
from tests.games.images import Images
from tests.games.page import Row, with_row


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--page", type=Path, help="write the table of the played games to this page")


@pytest.fixture(scope="session")
def write_row(request: pytest.FixtureRequest) -> Callable[[Row], None]:
    """Write the row of a game that was played, if there is `--page`."""
    page: Path | None = request.config.getoption("page", None)

    def write(row: Row) -> None:
        if page is not None:
            page.write_text(with_row(page.read_text("utf-8"), row), "utf-8")

    return write


@pytest.fixture(scope="module")
def stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    with a_stack(docker_engine, demo_image, stop_grace=10) as made:
        yield made


@pytest.fixture(scope="module")
def images(
    docker_engine: Path, demo_image: Image, tmp_path_factory: pytest.TempPathFactory
) -> Images:
    """Begins after `demo_image`, whose end removes the images of this registry."""
    return Images(docker_engine, demo_image.address, tmp_path_factory.mktemp("apt"))
