import asyncio
import socket
import threading

import pytest

from controlplane.domain.addresses import is_public
from controlplane.registries.resolver import LookUps, Resolver

PUBLIC = (
    "1.1.1.1",
    "2606:4700:4700::1111",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
    "2002:101:101::",  # embedded IPv4
)
OTHERS = (
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "0.0.0.0",
    "240.0.0.1",
    "255.255.255.255",
    "224.0.0.1",
    "192.0.0.8",
    "192.0.0.9",
    "::",
    "::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "ff02::1",
    "fec0::1",
    "feff::1",
    "64:ff9b:1::101:101",
    "::ffff:127.0.0.1",
    "::ffff:192.0.0.9",
    "::127.0.0.1",
    "168.63.129.16",
    "::ffff:168.63.129.16",
    "64:ff9b::a83f:8110",
    "161.26.0.10",
    "166.9.255.255",
    "::1.1.1.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2002:c000:8::",
    "2001:0:101:101::1",
)


@pytest.mark.parametrize("address", PUBLIC + OTHERS)
def test_recognizes_public_addresses(address: str) -> None:
    assert is_public(address) is (address in PUBLIC)


async def test_shares_lookups_of_a_name_on_own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    look_ups = LookUps()
    threads: list[str] = []
    answered = threading.Event()

    def slow(host: str) -> list[tuple[socket.AddressFamily, int, str]]:
        threads.append(threading.current_thread().name)
        answered.wait()
        return [(socket.AF_INET6, socket.IPPROTO_TCP, "2606:4700::1111")]

    monkeypatch.setattr("controlplane.registries.resolver.look_up", slow)
    resolver = Resolver(look_ups, only_public=True)
    asking = [asyncio.create_task(resolver.resolve("r.example", 443)) for _ in range(9)]
    await asyncio.sleep(0)
    asking[0].cancel()  # does not affect the others
    answered.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(found.pop(0), asyncio.CancelledError)
    for result in found:
        assert not isinstance(result, BaseException)
        (one,) = result
        assert one["hostname"] == "r.example"
        assert one["host"] == "2606:4700::1111"
        assert one["port"] == 443
        assert one["family"] == socket.AF_INET6
    assert [name.rpartition("_")[0] for name in threads] == ["registry names"]
    await resolver.resolve("r.example", 443)
    assert len(threads) == 2
    look_ups.close()


async def test_hanging_lookups_do_not_delay_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    look_ups = LookUps()
    answered = threading.Event()

    def hang(host: str) -> list[tuple[socket.AddressFamily, int, str]]:
        if host != "good.example":
            answered.wait()
        return [(socket.AF_INET, socket.IPPROTO_TCP, "192.0.2.1")]

    monkeypatch.setattr("controlplane.registries.resolver.look_up", hang)
    hanging = [
        asyncio.create_task(look_ups.addresses(f"{number}.example")) for number in range(40)
    ]
    await asyncio.sleep(0)
    try:
        good = await look_ups.addresses("good.example")
    finally:
        answered.set()
    await asyncio.gather(*hanging)
    look_ups.close()
    assert good == [(socket.AF_INET, socket.IPPROTO_TCP, "192.0.2.1")]


async def test_hanging_lookup_does_not_delay_close(monkeypatch: pytest.MonkeyPatch) -> None:
    look_ups = LookUps()
    begun = threading.Event()
    answered = threading.Event()

    def hang(host: str) -> list[tuple[socket.AddressFamily, int, str]]:
        begun.set()
        answered.wait()
        raise OSError("no such host")

    monkeypatch.setattr("controlplane.registries.resolver.look_up", hang)
    asking = asyncio.create_task(look_ups.addresses("r.example"))
    await asyncio.sleep(0)
    await asyncio.to_thread(begun.wait)
    look_ups.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    answered.set()  # the test fails if its thread is alive at the end
