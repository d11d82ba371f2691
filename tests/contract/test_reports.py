"""A report on its way from the agent's record to the values of the control plane."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agent.domain.sessions.history import Usage, signal_of
from agent.domain.sessions.session import Session
from agent.logs.report import Tail
from agent.rpc import wire
from controlplane.agent_rpc.session_details import report_in
from controlplane.domain.hosts.session_report import SessionReport
from tests.support.agent.samples import a_spec, an_id
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import EndReason, State
from tiltyard.ends import FailedRun, Limit, Moment, StopResult

milliseconds = st.integers(0, 4_000_000_000_000)
times = milliseconds.map(lambda count: count / 1000)
spans = st.integers(0, 10_000_000_000).map(lambda count: count / 1000)
"""Seconds, of more than a hundred days: the nanoseconds that are sent are those of the float."""
codes = st.none() | st.integers(0, 255)
limits = st.lists(st.sampled_from(Limit)).map(tuple)
ended = st.builds(
    Session,
    internal_id=st.just(an_id()),
    spec=st.just(a_spec()),
    state=st.sampled_from([State.EXITED, State.DEAD]),
    end_reason=st.sampled_from(EndReason),
    detail=st.text(st.characters(exclude_categories=["Cs"])),
    create_time=times,
    end_time=times,
    exit_code=codes,
    oom_killed=st.booleans(),
    limits_met=limits,
    log_damaged=st.booleans(),
    restart_count=st.integers(0, 2**31),
    failed_runs=st.lists(
        st.builds(FailedRun, st.none() | times, times, codes, st.booleans(), spans, limits),
        max_size=3,
    ).map(tuple),
    timeline=st.lists(st.builds(Moment, st.sampled_from(State), times)).map(tuple),
    prepared=st.sampled_from(["", an_id()]),
    stop=st.none()
    | st.builds(
        StopResult,
        st.sampled_from(["SIGTERM", "37"]),
        st.none() | st.booleans(),
        st.booleans(),
        st.lists(st.just("game"), max_size=3).map(tuple),
    ),
    run_usage=st.builds(Usage, st.none() | spans, st.none() | st.integers(0, 2**50)),
)


@given(ended, st.none() | st.builds(Tail, st.binary(), st.booleans()))
def test_nothing_is_lost_on_the_way(session: Session, tail: Tail | None) -> None:
    sent = wire.report_to_proto(session, tail).SerializeToString()
    assert session.end_reason is not None
    assert report_in(pb.GetReportResponse.FromString(sent)) == SessionReport(
        state=session.state,
        end_reason=session.end_reason,
        detail=session.detail,
        create_time=_sent(session.create_time),
        end_time=_sent(session.end_time or 0),
        exit_code=session.exit_code,
        signal=signal_of(session.exit_code),
        oom_killed=session.oom_killed,
        limits_met=session.limits_met,
        restart_count=session.restart_count,
        failed_runs=tuple(
            replace(
                run,
                start_time=None if run.start_time is None else _sent(run.start_time),
                end_time=_sent(run.end_time),
            )
            for run in session.failed_runs
        ),
        timeline=tuple(replace(each, time=_sent(each.time)) for each in session.timeline),
        cpu_seconds=session.run_usage.cpu_seconds,
        peak_memory_bytes=session.run_usage.peak_memory_bytes,
        prepared=bool(session.prepared),
        stop=session.stop,
        log=None if tail is None else tail.data,
        log_truncated=tail is not None and tail.cut,
        log_damaged=tail is not None and session.log_damaged,
    )


def _sent(seconds: float) -> float:
    return int(round(seconds * 1e9) // 10**6) / 1000
