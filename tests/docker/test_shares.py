"""An account whose image takes the engine seconds to create leaves room for others."""

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.demo_game import Image
from tests.docker.stack import Stack, a_stack
from tests.faults.plugin import Figure
from tests.support.agent.tars import Entry, folder
from tests.support.api_client import ApiClient
from tests.support.deployment import REGION, application, enable_tag
from tests.support.pushed_image import push_image

FILES = 2500  # Which the engine copies into a volume when it creates a container
SLOW = "slow"
QUICK = "quick"
CALLERS = 8  # Of the slow image, each with one start at a time
STARTS = 24
AT_ONCE = 4
OTHER = "other"  # The account that starts the quick image
MOST_TIMES_LONGER = 10


def start_and_end(client: ApiClient, image: str) -> tuple[int, float]:
    """Start a session and end it; return the status, and the seconds of the start."""
    began = time.monotonic()
    body = {"location": REGION, "image": image}
    answer = client.request("POST", "/session", body=body, timeout=90)
    took = time.monotonic() - began
    if answer.status == 201:
        client.delete_session(answer.json()["id"]).expect(204)
    return answer.status, took


def starts(client: ApiClient) -> tuple[set[int], float]:
    """Start quick sessions, some at a time; return the statuses and the median seconds."""
    with ThreadPoolExecutor(AT_ONCE) as callers:
        made = [callers.submit(start_and_end, client, QUICK) for _ in range(STARTS)]
    results = [each.result() for each in made]
    return {status for status, _ in results}, statistics.median(took for _, took in results)


@contextlib.contextmanager
def flooding(client: ApiClient) -> Iterator[list[tuple[int, float]]]:
    """Keep starting the slow image; yields the statuses and seconds of the starts so far."""
    stopping = threading.Event()
    results: list[tuple[int, float]] = []

    def go_on() -> None:
        while not stopping.is_set():
            results.append(start_and_end(client, SLOW))

    callers = [threading.Thread(target=go_on) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        yield results
    finally:
        stopping.set()
        for caller in callers:
            caller.join()


def make_images(stack: Stack) -> None:
    """Make both applications, and pull their images."""
    files = [Entry(b"volume/%d" % number, content=b"x") for number in range(FILES)]
    push_image(
        stack.image.address,
        SLOW,
        entries=[folder(b"volume"), *files],
        config={"Volumes": {"/volume": {}}},
    )
    push_image(stack.image.address, QUICK)
    for account, name in (("default", SLOW), (OTHER, QUICK)):
        client = stack.control_plane.client(account)
        client.post("/application", application(name, repository=name)).expect(201)
        enable_tag(client, name, "v1")


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_starts_of_a_slow_image_delay_those_of_other_accounts_little(
    docker_engine: Path, demo_image: Image, figure: Figure
) -> None:
    with a_stack(docker_engine, demo_image) as stack:
        make_images(stack)
        other = stack.control_plane.client(OTHER)
        _, slow_alone = start_and_end(stack.client, SLOW)
        _, alone = starts(other)
        with flooding(stack.client) as slow:
            statuses, beside = starts(other)
        figure("median alone", f"{alone:.2f} s")
        figure("median beside slow starts", f"{beside:.2f} s")
        figure("slow start alone", f"{slow_alone:.2f} s")
        figure("slow starts beside", len(slow))
        assert len(slow) >= CALLERS
        assert statuses == {201}
        assert beside < MOST_TIMES_LONGER * alone
