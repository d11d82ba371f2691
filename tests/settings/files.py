"""What tests of both programs do with a settings file."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness import AgentProcess, ControlPlaneProcess
from tiltyard.runtime.settings.mistakes import SettingsError

DEADLINE = 20.0
ODD = (
    *("1", "-1", "0", "1e400", "nan", "true", "99999999999999999999", "1979-05-27", "07:32:00"),
    *("''", "'x'", '"\\u0000"', "'é😀'", "[]", "[1]", "['']", "[[1]]", "{}", "{a = 1}", "[{}]"),
)
"""Values of every kind of TOML's, few of which fit anywhere."""


def assert_taken_or_told(
    path: Path, key: str, check: Callable[[Path], object], refusal: type[SettingsError]
) -> None:
    """Whatever stands for a key, a check takes it or refuses it with the place of each mistake."""
    for value in ODD:
        path.write_text(f"{key} = {value}\n")
        try:
            check(path)
        except refusal as error:
            nowhere = [str(mistake) for mistake in error.mistakes if not mistake.where]
        else:
            nowhere = []
        assert nowhere == [], value


def hang_up(part: AgentProcess | ControlPlaneProcess, text: str, event: str) -> None:
    """Write the file, send SIGHUP, and wait for one more line of an event.

    The file is replaced as a whole: it may be being read for a SIGHUP before this one.
    """
    log = part.process.log
    before = log.read_text().count(event)
    whole = part.config.with_suffix(".new")
    whole.write_text(text)
    whole.replace(part.config)
    os.kill(part.process.pid, signal.SIGHUP)
    deadline = time.monotonic() + DEADLINE
    while log.read_text().count(event) == before:
        assert part.process.is_running, part.process.tail()
        assert time.monotonic() < deadline, part.process.tail()
        time.sleep(0.02)
