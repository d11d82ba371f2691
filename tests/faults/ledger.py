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
        self.checked: set[int] = set()  # The numbers of the invariants that were looked at
        self.late_seconds = 0.0  # How late the latest lifetime ended
        self.lines_lost = 0  # The lines that sealed logs lack, of those that games wrote

    def begin(self, test: str, *, is_part: bool) -> None:
        """Note the name of the test that begins; one of a part alone has no host."""
        self.wants_checks = fault_of(test) is not None and not is_part
        self.checked = set()
        self.late_seconds = 0.0
        self.lines_lost = 0

    def properties(self) -> list[tuple[str, object]]:
        """What the page says of the test, as properties of a report."""
        checked = ", ".join(f"I{number}" for number in sorted(self.checked))
        return [("checked", checked), ("late", self.late_seconds), ("lost", self.lines_lost)]


ledger = _Ledger()
