import pytest

from tiltyard.images import is_familiar, why_refused

ACCEPTED = [
    "localhost",
    "r:1",
    "r.example:65535",
    "192.0.2.1:5000",
    "a-b.c",
    "r.1e:1",
    "registry-1.docker.io",
    "127.0.0.1",
    "a." * 126 + "c",
    "a" * 63 + ".b",
]
REFUSED = [
    "",
    "r",
    "R",
    "LOCALHOST",
    "r:",
    ":1",
    "r:0",
    "r:01",
    "r:65536",
    "r:123456",
    "r:\u0661:1",
    "127.1:1",
    "1:1",
    "0x7f.1",
    "a.0x",
    "01.2.3.4",
    "256.1.1.1",
    "1.2.3.4.5",
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
    "a." * 126 + "co",
    "a" * 64 + ".b",
]


HUB = ["docker.io", "index.docker.io", "DOCKER.io"]  # It has one name


@pytest.mark.parametrize("address", ACCEPTED + REFUSED + HUB)
def test_accepts_addresses_and_no_other_text(address: str) -> None:
    assert (why_refused(address) is None) is (address in ACCEPTED)
    if address not in ACCEPTED:
        assert is_familiar(address) is (address in HUB)
