"""The current test of a fault, and whether it checked the invariants."""

import re

_NAME = re.compile(r"test_f(\d\d)_")


def fault_of(name: str) -> int | None:
    """Return the number of the fault of a test, by the test's name."""
    found = _NAME.match(name)
    return int(found[1]) if found else None


class _Ledger:
    """The current test. Each process of pytest has a ledger of its own."""

    def __init__(self) -> None:
        self.wants_checks = False
        """True during a test of a fault that must check its hosts at their end."""
        self.checked: set[int] = set()  # The numbers of the invariants that were looked at
        self.late_seconds = 0.0  # How late the latest lifetime ended
        self.lines_lost = 0  # The lines that sealed logs lack, of those that games wrote

    def begin(self, test: str, *, is_part: bool) -> None:
        """Note the name of the test that begins; a test of a single part has no host."""
        self.wants_checks = fault_of(test) is not None and not is_part
        self.checked = set()
        self.late_seconds = 0.0
        self.lines_lost = 0

    def properties(self) -> list[tuple[str, object]]:
        """Return the test's cells of the page, as properties of a report."""
        checked = ", ".join(f"I{number}" for number in sorted(self.checked))
        return [("checked", checked), ("late", self.late_seconds), ("lost", self.lines_lost)]


ledger = _Ledger()
