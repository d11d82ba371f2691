from typing import Any

import pytest

from tests.support.loopback_registries import HINT, has_loopback


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"InsecureRegistryCIDRs": ["127.0.0.0/8"]}, True),
        ({"InsecureRegistryCIDRs": ["::1/128", "127.0.0.0/8"]}, True),
        ({"InsecureRegistryCIDRs": ["10.0.0.0/8"]}, False),
        ({"InsecureRegistryCIDRs": []}, False),
        ({}, True),
        (None, True),
    ],
)
def test_engine_that_demands_tls_of_loopback_is_recognised(config: Any, expected: bool) -> None:
    assert has_loopback({"RegistryConfig": config}) is expected


def test_hint_has_the_line_to_add() -> None:
    assert '"127.0.0.0/8" to "insecure-registries"' in HINT
