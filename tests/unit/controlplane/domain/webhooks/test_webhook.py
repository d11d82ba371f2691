"""The URL of a webhook."""

import pytest

from controlplane.domain.webhooks.webhook import MAX_URL, address_in, check_url, host_of

URL = "https://hooks.example/tiltyard"


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "https://hooks.example",
        "https://hooks.example:8443/a/b?c=d&e=%20",
        "https://hooks.example?token=x",
        "https://192.0.2.1/",
        "https://[2001:db8::1]:444/x",
        "https://xn--bcher-kva.example/",
        "https://under_score.example/",
        f"https://hooks.example/{'a' * (MAX_URL - 22)}",
    ],
)
def test_accepts(url: str) -> None:
    check_url(url, plain_http=False)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://hooks.example/",
        "ftp://hooks.example/",
        "HTTPS://hooks.example/",
        "https:hooks.example",
        "https:///path",
        "https://",
        "https://user@hooks.example/",
        "https://user:password@hooks.example/",
        "https://hooks.example/#fragment",
        "https://hooks.example#fragment",
        "https://hooks.example:0/",
        "https://hooks.example:65536/",
        "https://hooks.example:99999/",
        "https://hooks.example:/",
        "https://hooks.example:1x/",
        "https://hooks.example/a b",
        "https://hooks.example/\n",
        "https://hooks.example\n",
        " https://hooks.example/",
        "https://hooks.example\\@evil.example/",
        "https://evil.example\\.hooks.example/",
        "https://bücher.example/",
        "https://hooks.example/ü",
        "https://[::1%25eth0]/",
        "https://[::1/",
        "https://-.example/",
        "https://2130706433/",
        "https://127.1/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://1.2.3.4.5/",
        "https://127.0.0.1./",
        "https://256.0.0.1/",
        "https://[2001:db8::g]/",
        "https://[1:2]/",
        "https://[127.0.0.1.2]/",
        "https://[192.0.2.1]/",
        "https://127.0.0.1../",
        "https://hooks..example/",
        f"https://{'a' * 64}.example/",
        f"https://hooks.example/{'a' * (MAX_URL - 21)}",
    ],
)
def test_refuses(url: str) -> None:
    with pytest.raises(ValueError, match=r"^must "):
        check_url(url, plain_http=False)


def test_plain_http_is_accepted_where_operators_allow_it() -> None:
    check_url("http://hooks.example/", plain_http=True)
    check_url(URL, plain_http=True)


@pytest.mark.parametrize(
    ("url", "host", "address"),
    [
        ("https://hooks.example:8443/secret?a=b", "hooks.example:8443", ""),
        ("https://hooks.example?secret", "hooks.example", ""),
        ("https://192.0.2.1:444/x", "192.0.2.1:444", "192.0.2.1"),
        ("https://[2001:db8::1]/x", "[2001:db8::1]", "2001:db8::1"),
        ("https://[2001:db8::1]:444", "[2001:db8::1]:444", "2001:db8::1"),
    ],
)
def test_host_of_a_url(url: str, host: str, address: str) -> None:
    assert host_of(url) == host
    assert address_in(url) == address
