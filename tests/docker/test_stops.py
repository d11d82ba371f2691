"""Stops of games behind start scripts, as published images have them, with a real shell."""

from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from tests.docker.programs import SHELL, programs
from tests.docker.stack import PATIENCE, Stack, eventually
from tests.support.deployment import REGION
from tests.support.harness import Registry
from tests.support.pushed_image import push_image

READY = {"Prefer": "wait=ready"}
SAVED = "SIGTERM: saving"


@pytest.fixture(scope="module")
def script_image(registry: Registry) -> str:
    """The repository of an image whose arguments are a script for a shell beside the game."""
    config = {"Entrypoint": [SHELL, "-c"]}
    push_image(registry.address, "scripted", entries=programs(SHELL), config=config)
    return "scripted"


@pytest.fixture(scope="module")
def scripted(patient_stack: Stack, script_image: str) -> Stack:
    """Hosts with an application `scripted` of that image."""
    patient_stack.make_game("scripted", repository=script_image)
    return patient_stack


@pytest.fixture(scope="module")
def impatient(shared_stack: Stack, script_image: str) -> Stack:
    """The same with a short grace period."""
    shared_stack.make_game("scripted", repository=script_image)
    return shared_stack


def stopped(stack: Stack, script: str) -> dict[str, object]:
    """The report of a session that was stopped, with the seconds that the stop took."""
    answer = stack.try_to_start(READY, image="scripted", args=[script])
    made = answer.expect(201).json()
    begin = monotonic()
    stack.end(made["id"])
    return {**stack.report(made["id"]), "took": monotonic() - begin}


def test_stop_reaches_the_game_behind_each_kind_of_start_script(scripted: Stack) -> None:
    scripts = {
        "exec /game": 0,
        "/game; exit 4": 143,  # the shell ends by the signal, and the game saves
        "/game & wait": 143,
        "trap : TERM; /game; exit 5": 5,  # the shell waits for the game before its trap
        "trap 'kill $!; wait; exit 6' TERM; /game & wait": 6,
    }
    with ThreadPoolExecutor() as callers:
        reports = list(callers.map(lambda script: stopped(scripted, script), scripts))
    for report, exit_code in zip(reports, scripts.values(), strict=True):
        assert str(report["log"]).splitlines()[-1].endswith(SAVED)
        assert report["exitCode"] == exit_code
        assert report["end_reason"] == "stopped"


def test_report_says_how_a_game_was_stopped(
    scripted: Stack, impatient: Stack, registry: Registry
) -> None:
    config = {"Entrypoint": [SHELL, "-c"], "StopSignal": "SIGINT"}
    push_image(registry.address, "interrupted", entries=programs(SHELL), config=config)
    scripted.make_game("interrupted", repository="interrupted")
    script = "trap 'exit 8' INT; echo up; while :; do :; done"
    made = scripted.start(image="interrupted", args=[script])
    with scripted.client.stream("/logs", id=made["id"], follow="true", timeout=PATIENCE) as log:
        assert log.readline() == b"up\n"
    scripted.end(made["id"])
    asked = scripted.report(made["id"])
    forced = stopped(impatient, "/game --ignore-sigterm & wait")
    assert asked["exitCode"] == 8
    assert asked["stopSignal"] == "SIGINT"
    assert asked["signalDelivered"] is True
    assert asked["forced"] is False
    assert forced["exitCode"] == 137
    assert forced["stopSignal"] == "SIGTERM"
    assert forced["forced"] is True
    assert forced["killed"] == ["game"]


def test_claim_signal_reaches_the_game_behind_a_script_that_has_no_handler(
    scripted: Stack,
) -> None:
    pool = f"/warm-pool/scripted/{REGION}"
    asked = {"size": 1, "args": ["/game & wait"], "claimSignal": "SIGUSR1"}
    scripted.client.put(pool, asked).expect(204)
    eventually(lambda: is_ready(scripted), "the standby is ready")
    made = scripted.start(image="scripted", args=["ignored"])
    scripted.client.request("DELETE", pool).expect(204)
    with scripted.client.stream("/logs", id=made["id"], follow="true", timeout=PATIENCE) as log:
        while b"SIGUSR1: " not in log.readline():
            pass
    assert scripted.status(made["id"]) == "running"
    scripted.end(made["id"])


def is_ready(stack: Stack) -> bool:
    [pool] = stack.client.get("/warm-pool").expect(200).json()["warmPools"]
    return bool(pool["ready"])


def test_game_that_ends_by_itself_ends_its_container_at_once(scripted: Stack) -> None:
    other = f"(trap 'echo {SAVED}' TERM; while :; do :; done)"
    script = f"{other} & exec /game --exit-after 0.1 --exit-code 7"
    made = scripted.start(image="scripted", args=[script])
    report = scripted.report(made["id"])
    assert report["exitCode"] == 7
    assert SAVED not in report["log"]
