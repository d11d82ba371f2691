import itertools
from dataclasses import replace

import pytest

from agent.domain.containers.ends import Evidence, end_of_run, ended
from agent.domain.containers.engine import Container, ContainerStatus, ReportedEnd
from agent.domain.sessions.history import Usage
from agent.domain.sessions.session import Session
from tests.support.agent.samples import a_session
from tiltyard.contract import Capability, EndReason, State
from tiltyard.ends import Limit

SINCE = 1000.0
SEEN = 1010.0
REPORTED = 1011.0
RECORDED = 1012.0
NOW = 1020.0

REPORT = ReportedEnd(3 << 8, REPORTED)
FULL = ReportedEnd(7, REPORTED, (Limit.SHM,))
FORGED = ReportedEnd(3 << 8, NOW + 1)


def _container(status: ContainerStatus, **changes: object) -> Container:
    return Container("c", "name", status, {}, **changes)  # type: ignore[arg-type]  # names are checked


ENGINES = {
    "gone": None,
    "created": _container(ContainerStatus.CREATED),
    "running": _container(ContainerStatus.RUNNING, end_time=900.0),  # of the run before
    "ended": _container(ContainerStatus.ENDED, exit_code=7, end_time=RECORDED),
    "bare": _container(ContainerStatus.ENDED),  # ended, and nothing else is known
}
REPORTS = {"none": None, "true": REPORT, "forged": FORGED}

TIMES = {
    # (this agent saw it, init's report, the engine): whose time counts
    (True, "none", "gone"): SEEN,
    (True, "none", "created"): SEEN,
    (True, "none", "running"): SEEN,
    (True, "none", "ended"): SEEN,
    (True, "none", "bare"): SEEN,
    (True, "true", "gone"): SEEN,
    (True, "true", "created"): SEEN,
    (True, "true", "running"): SEEN,
    (True, "true", "ended"): SEEN,
    (True, "true", "bare"): SEEN,
    (True, "forged", "gone"): SEEN,
    (True, "forged", "created"): SEEN,
    (True, "forged", "running"): SEEN,
    (True, "forged", "ended"): SEEN,
    (True, "forged", "bare"): SEEN,
    (False, "none", "gone"): NOW,
    (False, "none", "created"): NOW,
    (False, "none", "running"): NOW,
    (False, "none", "ended"): RECORDED,
    (False, "none", "bare"): NOW,
    (False, "true", "gone"): REPORTED,
    (False, "true", "created"): REPORTED,
    (False, "true", "running"): REPORTED,
    (False, "true", "ended"): REPORTED,
    (False, "true", "bare"): REPORTED,
    (False, "forged", "gone"): NOW,
    (False, "forged", "created"): NOW,
    (False, "forged", "running"): NOW,
    (False, "forged", "ended"): RECORDED,
    (False, "forged", "bare"): NOW,
}
EXIT_CODES = {
    # (init's report, the engine, it was disturbed): the exit code
    ("none", "gone", False): None,
    ("none", "gone", True): None,
    ("none", "created", False): None,
    ("none", "created", True): None,
    ("none", "running", False): None,
    ("none", "running", True): None,
    ("none", "ended", False): 7,
    ("none", "ended", True): None,
    ("none", "bare", False): None,
    ("none", "bare", True): None,
    ("true", "gone", False): 3,
    ("true", "gone", True): 3,
    ("true", "created", False): 3,
    ("true", "created", True): 3,
    ("true", "running", False): 3,
    ("true", "running", True): 3,
    ("true", "ended", False): 7,
    ("true", "ended", True): 3,
    ("true", "bare", False): 3,
    ("true", "bare", True): 3,
}
OOM_KILLS = {
    # (the engine reports one, the kernel counts one, the exit code is that of SIGKILL)
    (False, False, False): False,
    (False, False, True): False,
    (False, True, False): True,
    (False, True, True): True,
    (True, False, False): True,
    (True, False, True): True,
    (True, True, False): True,
    (True, True, True): True,
}


def test_table_has_each_combination() -> None:
    assert set(TIMES) == set(itertools.product((True, False), REPORTS, ENGINES))
    assert set(EXIT_CODES) == set(itertools.product(("none", "true"), ENGINES, (False, True)))
    assert set(OOM_KILLS) == set(itertools.product((False, True), repeat=3))


@pytest.mark.parametrize(("sources", "expected"), TIMES.items(), ids=str)
def test_time_is_of_the_first_source(sources: tuple[bool, str, str], expected: float) -> None:
    (seen, report, engine) = sources
    evidence = Evidence(SEEN if seen else None, REPORTS[report], ENGINES[engine])
    assert end_of_run(evidence, since=SINCE, now=NOW).time == expected


@pytest.mark.parametrize("disturbed", [False, True])
def test_time_of_the_engine_counts_also_if_it_was_disturbed(*, disturbed: bool) -> None:
    evidence = Evidence(engine=ENGINES["ended"], disturbed=disturbed)
    assert end_of_run(evidence, since=SINCE, now=NOW).time == RECORDED


OUTSIDE = (SINCE - 0.001, NOW + 0.001)


@pytest.mark.parametrize("time", OUTSIDE)
def test_report_of_a_time_outside_the_run_has_none(time: float) -> None:
    evidence = Evidence(reported=ReportedEnd(0, time), engine=ENGINES["ended"])
    assert end_of_run(evidence, since=SINCE, now=NOW).time == RECORDED


@pytest.mark.parametrize("time", [SINCE, NOW])
def test_report_of_a_time_at_the_bounds_of_the_run_counts(time: float) -> None:
    evidence = Evidence(reported=ReportedEnd(0, time), engine=ENGINES["ended"])
    assert end_of_run(evidence, since=SINCE, now=NOW).time == time


@pytest.mark.parametrize("seen", [None, SEEN])
@pytest.mark.parametrize(("sources", "expected"), EXIT_CODES.items(), ids=str)
def test_exit_code_is_of_the_first_source(
    sources: tuple[str, str, bool], expected: int | None, seen: float | None
) -> None:
    (report, engine, disturbed) = sources
    evidence = Evidence(seen, REPORTS[report], ENGINES[engine], disturbed=disturbed)
    assert end_of_run(evidence, since=SINCE, now=NOW).exit_code == expected


@pytest.mark.parametrize(("sources", "expected"), OOM_KILLS.items(), ids=str)
def test_oom_kill_is_reported_by_the_engine_or_the_kernel(
    sources: tuple[bool, bool, bool], *, expected: bool
) -> None:
    (by_engine, by_kernel, killed) = sources
    ended = _container(ContainerStatus.ENDED, exit_code=137 if killed else 1, oom_killed=by_engine)
    evidence = Evidence(engine=ended, usage=Usage(oom_kills=int(by_kernel)))
    assert end_of_run(evidence, since=SINCE, now=NOW).oom_killed is expected


def test_oom_kill_that_only_the_kernel_and_init_know_of_counts() -> None:
    evidence = Evidence(reported=ReportedEnd(9, REPORTED), usage=Usage(oom_kills=1))
    end = end_of_run(evidence, since=SINCE, now=NOW)
    assert end.exit_code == 137
    assert end.oom_killed is True


@pytest.mark.parametrize(
    ("usage", "reported", "limits"),
    [
        (Usage(), None, ()),
        (Usage(refused_pids=0), REPORT, ()),
        (Usage(refused_pids=1), None, (Limit.PIDS,)),
        (Usage(), FULL, (Limit.SHM,)),
        (
            Usage(refused_pids=3),
            FULL,
            (Limit.PIDS, Limit.SHM),
        ),
        (Usage(), ReportedEnd(7, REPORTED, (Limit.PIDS,)), (Limit.PIDS,)),
        (Usage(oom_kills=3), REPORT, ()),  # the memory is a fact of its own
    ],
)
def test_limits_are_of_the_kernel_and_of_init(
    usage: Usage, reported: ReportedEnd | None, limits: tuple[Limit, ...]
) -> None:
    evidence = Evidence(reported=reported, engine=ENGINES["ended"], usage=usage)
    assert end_of_run(evidence, since=SINCE, now=NOW).limits_met == limits


RUNNING = a_session().to(State.RUNNING, at=SINCE)
AS_ROOT = _container(ContainerStatus.ENDED, exit_code=1, end_time=RECORDED, starts_as_root=True)


def test_report_says_that_a_root_without_capabilities_failed_before_it_was_ready() -> None:
    found = ended(RUNNING, Evidence(engine=AS_ROOT), now=NOW)
    assert found.detail == "its image starts as root, and its application asks for no capabilities"


@pytest.mark.parametrize(
    ("session", "engine"),
    [
        (RUNNING, replace(AS_ROOT, starts_as_root=False)),
        (RUNNING, replace(AS_ROOT, exit_code=0)),
        (RUNNING, replace(AS_ROOT, exit_code=139)),
        (replace(RUNNING, ready_time=SINCE), AS_ROOT),
        (replace(RUNNING, stop_reason=EndReason.STOPPED), AS_ROOT),
        (
            replace(RUNNING, spec=replace(RUNNING.spec, capabilities=(Capability.CHOWN,))),
            AS_ROOT,
        ),
    ],
    ids=["user", "success", "signal", "ready", "stopped", "capabilities"],
)
def test_report_does_not_mention_capabilities_otherwise(
    session: Session, engine: Container
) -> None:
    assert ended(session, Evidence(engine=engine), now=NOW).detail == ""


@pytest.mark.parametrize("engine", ["gone", "running"])
def test_end_without_the_engines_word_is_not_confirmed(engine: str) -> None:
    assert not Evidence(engine=ENGINES[engine]).is_confirmed


@pytest.mark.parametrize("engine", ["created", "ended", "bare"])
def test_end_that_the_engine_reports_is_confirmed(engine: str) -> None:
    assert Evidence(engine=ENGINES[engine]).is_confirmed


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (0, 0),
        (3 << 8, 3),
        (255 << 8, 255),
        (9, 137),
        (11, 139),
        (11 | 0x80, 139),  # with a core dump
    ],
)
def test_wait_status_is_read_as_an_exit_code(status: int, code: int) -> None:
    assert ReportedEnd(status, NOW).exit_code == code
