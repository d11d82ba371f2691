"""One whole host for all tests of this folder; each leaves it serving."""

from collections.abc import Iterator

import pytest

from tests.host.whole_host import WholeHost, whole_host


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeHost]:
    with whole_host(tmp_path_factory.mktemp("registry")) as made:
        yield made
