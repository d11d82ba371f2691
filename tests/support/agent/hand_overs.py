"""A fixture of tests that hand a program over to the first process of a container."""

from collections.abc import Iterator

import pytest

from agent.docker import first_process


@pytest.fixture(autouse=True)
def patient_hand_overs() -> Iterator[None]:
    """A hand-over returns once the program is executed, also on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_process, "EXECUTED_SECONDS", 120.0)
        yield
