"""What a service manager asks for, as it tells it."""

import os

import pytest

from tiltyard.runtime.systemd import Supervision, read_supervision


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, Supervision()),
        ({"JOURNAL_STREAM": "8:17"}, Supervision(journal_stream="8:17")),
        ({"NOTIFY_SOCKET": "/run/n"}, Supervision("/run/n")),
        (
            {"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())},
            Supervision("@n", 2.5),
        ),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "10000000"}, Supervision("@n", 10.0)),
        # Of the process that started us, as when it is run from a service's shell.
        (
            {"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"},
            Supervision("@n"),
        ),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "0"}, Supervision("@n")),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "-1"}, Supervision("@n")),
    ],
)
def test_what_a_service_manager_asks_for_is_in_the_environment(
    environment: dict[str, str], asked: Supervision
) -> None:
    assert read_supervision(environment) == asked
