"""Which test of a fault runs, and whether it looked for what must hold after it."""

import re

_NAME = re.compile(r"test_f(\d\d)_")


def fault_of(name: str) -> int | None:
    """The number of the fault that a test of this name is for."""
    found = _NAME.match(name)
    return int(found[1]) if found else None


class _Ledger:
    """The test under way. One at a time: each process of pytest has its own."""

    def __init__(self) -> None:
        self.wants_checks = False
        """True while a fault is under test whose hosts are to be looked over at their end."""
        self.checked = False

    def begin(self, test: str, *, is_part: bool) -> None:
        """Note the name of the test that begins; one of a part alone has no host."""
        self.wants_checks, self.checked = fault_of(test) is not None and not is_part, False


ledger = _Ledger()
