import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.registry_address import LONGEST_HOST, why_refused
from controlplane.domain.names import MAX_HOST, is_registry_address

HUB_IN_SHORT = ("docker.io", "index.docker.io", "DOCKER.io")
ADDRESSES = [
    *("localhost", "r:1", "r.example:65535", "192.0.2.1:5000", "a-b.c", "registry-1.docker.io"),
    *("127.0.0.1", "a." * 126 + "c", "a." * 126 + "co", "a" * 63 + ".b", "a" * 64 + ".b"),
    *("", "r", "R", "LOCALHOST", "r:", ":1", "r:0", "r:01", "r:65536", "r:123456", "r:\u0661:1"),
    *("127.1:1", "1:1", "0x7f.1", "a.0x", "01.2.3.4", "256.1.1.1", "1.2.3.4.5", "r.1e:1"),
    *(
        "http://r",
        "u@r",
        "r/x",
        " r",
        "r.example\n",
        "r..x",
        "r.",
        "-r.x",
        "a_b.c",
        "[::1]:5",
        "é.x",
    ),
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_both_programs_take_the_same_addresses(address: str) -> None:
    assert (why_refused(address) is None) == is_registry_address(address)
    assert LONGEST_HOST == MAX_HOST


@given(st.text("aX0179.-:/@_\n", max_size=12))
def test_programs_agree_on_any_address(address: str) -> None:
    assert (why_refused(address) is None) == is_registry_address(address)


@pytest.mark.parametrize("address", HUB_IN_SHORT)
def test_docker_hub_has_one_name(address: str) -> None:
    assert why_refused(address) is not None
    assert is_registry_address(address)
