"""What a host reports of the states of its sessions reaches the control plane."""

from agent.rpc.wire import session_to_proto
from controlplane.agent_rpc.wire import session_in
from tests.support.agent.samples import a_session
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import EndReason, State
from tiltyard.ends import StopResult

RUNNING = a_session(start_time=4.0).to(State.RUNNING, at=1_700_000_005.0)
STOPPING = RUNNING.to(State.SHUTTINGDOWN, at=1_700_000_006.0, stop=StopResult("SIGTERM"))
END = {"end_reason": EndReason.STOPPED, "end_time": 1_700_000_007.0}


def test_report_has_the_time_of_a_state() -> None:
    assert session_in(session_to_proto(RUNNING)).state_time == 1_700_000_005.0
    assert session_in(session_to_proto(STOPPING)).state_time == 1_700_000_006.0


def test_report_says_whether_a_session_had_to_be_killed() -> None:
    killed = STOPPING.with_changes(stop=StopResult("SIGTERM", forced=True))
    for session, is_forced in ((RUNNING, False), (STOPPING, False), (killed, True)):
        ended = session.to(State.EXITED, at=1_700_000_007.0, **END)
        assert session_in(session_to_proto(ended)).forced is is_forced


def test_report_says_whether_a_program_was_run() -> None:
    assert session_in(session_to_proto(RUNNING)).has_run
    assert not session_in(session_to_proto(a_session())).has_run


def test_report_of_an_earlier_agent_has_no_time_of_its_state() -> None:
    message = session_to_proto(RUNNING)
    message.ClearField("state_time")
    assert session_in(agent_pb2.Session.FromString(message.SerializeToString())).state_time is None
