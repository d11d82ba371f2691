"""Log lines as a reader of standard error gets them."""

import os
from collections.abc import Callable
from typing import Any

from tests.support.log_lines import read
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.logging.line import Form
from tiltyard.runtime.logging.output import written

FORMS: tuple[Form, ...] = ("logfmt", "json")
TOKEN = "ty_" + "0" * 16 + "_" + "ab" * 36

log = get_logger("test_of_the_log")


class Pipe:
    """A pipe in place of standard error."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()

    def lines(self) -> list[str]:
        """The lines until the other end is closed."""
        with os.fdopen(self._ours, "rb") as pipe:
            text = pipe.read().decode()
        assert text == "" or text.endswith("\n")
        return text.split("\n")[:-1]


def said(write: Callable[[], object], form: Form = "logfmt", **how: Any) -> list[dict[str, Any]]:
    """Return the lines that a function logs."""
    pipe = Pipe()
    with written("info", form, descriptor=pipe.theirs, **how):
        write()
    os.close(pipe.theirs)
    return [read(one, form) for one in pipe.lines()]


def failing() -> None:
    """Log an exception with its cause."""
    try:
        try:
            int(f"x\nlevel=error\x1b[2J {TOKEN}")
        except ValueError as error:
            raise OSError("y") from error
    except OSError:
        log.exception("it failed")
