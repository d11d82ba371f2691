"""Streams that are open at a time."""

import asyncio
from contextlib import ExitStack

import pytest

from controlplane.admission.stream_slots import StreamSlots
from controlplane.domain.errors import TooManyStreamsError


def hold(stack: ExitStack, slots: StreamSlots, account: str, token: str = "") -> None:
    stack.enter_context(slots.held(account, token or account))


def test_account_alone_has_half_of_the_streams() -> None:
    slots = StreamSlots(total=6, per_token=9)
    with ExitStack() as stack:
        for _ in range(3):
            hold(stack, slots, "a")
        with pytest.raises(TooManyStreamsError, match="this account"):
            hold(stack, slots, "a")
        hold(stack, slots, "b")
        with pytest.raises(TooManyStreamsError):
            hold(stack, slots, "a")


def test_account_without_a_stream_gets_the_last_one() -> None:
    slots = StreamSlots(total=2, per_token=9)
    with ExitStack() as stack:
        hold(stack, slots, "a")
        hold(stack, slots, "b")
        with pytest.raises(TooManyStreamsError):
            hold(stack, slots, "c")


def test_token_has_a_limit_of_its_own() -> None:
    slots = StreamSlots(total=100, per_token=2)
    with ExitStack() as stack:
        hold(stack, slots, "a", "t")
        hold(stack, slots, "a", "t")
        with pytest.raises(TooManyStreamsError, match="this token"):
            hold(stack, slots, "a", "t")
        hold(stack, slots, "a", "u")


def test_released_slots_are_free_again() -> None:
    slots = StreamSlots(total=2, per_token=1)
    for _ in range(3):
        with slots.held("a", "t"):
            assert slots.taken == 1
    assert slots.taken == 0


async def test_end_of_the_last_stream_can_be_waited_for() -> None:
    slots = StreamSlots(total=9, per_token=9)
    await slots.all_released()
    with slots.held("a", "t"):
        with slots.held("b", "u"):
            waiting = asyncio.create_task(slots.all_released())
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting
