"""A second machine joins by the same page; the control plane is on the first."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.docker.stack import eventually, play_round
from tests.host.invariants import assert_right, assert_survived
from tests.host.load import QUIET
from tests.host.whole_host import SECOND, WholeHost, second_host
from tests.systemd.installed import CONTROL_PLANE, HOST, TOKENS

pytestmark = [pytest.mark.host, pytest.mark.root, pytest.mark.registry, pytest.mark.timeout(7200)]


def order(host: WholeHost, *arguments: str) -> None:
    command = (CONTROL_PLANE, "agent", *arguments, "--token-file", TOKENS)
    done = partial(host.system.attempt, *command)
    # A host is removed once its last standby has ended.
    eventually(lambda: done().returncode == 0, " ".join(command), patience=host.patience)


@contextmanager
def drained(host: WholeHost, name: str) -> Iterator[None]:
    order(host, "drain", name)
    try:
        yield
    finally:
        order(host, "undrain", name)


def test_f45_power_cut_of_second_host(host: WholeHost) -> None:
    with second_host(host) as second, drained(host, HOST):
        host.until_started(args=QUIET)  # it may still pull the image
        ends = host.start(args=QUIET)
        again = host.start(args=QUIET, restart=True)
        assert {each["host"] for each in (ends, again)} == {second.network.address}
        play_round(again)
        second.cut_power()
        host.until(again["id"], "server_unreachable")
        second.power_on()
        host.until(again["id"], "running")
        play_round(again, host.patience)
        assert host.report(ends["id"])["end_reason"] == "host_restart"
        assert_right(host, second)
        host.end_all()
        order(host, "undrain", HOST)
        order(host, "drain", SECOND)
        host.keep_standby()
        order(host, "remove", SECOND, "--yes")
    assert_survived(host)
