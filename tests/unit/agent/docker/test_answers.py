import itertools
import os
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.docker import answers
from agent.docker.answers import warnings_of
from agent.docker.frames import Demultiplexer, PullSteps
from agent.domain.containers.engine import ContainerStatus, LogPiece
from agent.domain.sessions.session import Process
from agent.kernel.processes import live_process
from tests.support.agent.scripted_engine import INFO, inspected
from tiltyard.images import PullProgress

NEVER = "0001-01-01T00:00:00Z"


def test_times() -> None:
    times = [
        (NEVER, None),
        ("", None),
        ("2001-09-09T01:46:40Z", 1e9),
        ("2001-09-09T01:46:40.5Z", 1e9 + 0.5),
        ("2001-09-09T03:46:40.250000000+02:00", 1e9 + 0.25),
    ]
    assert [(text, answers.engine_time(text)) for text, _ in times] == times


def test_running_container_has_no_exit_code_of_an_earlier_run() -> None:
    again = inspected(Status="running", Pid=42, FinishedAt="2026-11-21T04:01:06Z")
    found = answers.container_of(again, Process(42, 7))
    assert found.status == ContainerStatus.RUNNING
    assert found.exit_code is None


def test_container_that_failed_to_start_has_not_ended() -> None:
    failed = inspected(Status="created", ExitCode=128, Error="port is already allocated")
    found = answers.container_of(failed, None)
    assert found.status is ContainerStatus.CREATED
    assert found.exit_code is None
    assert found.error == "port is already allocated"


@pytest.mark.parametrize(
    ("declared", "signal"),
    [
        ({"StopSignal": "SIGINT"}, "SIGINT"),
        ({"StopSignal": "37"}, "37"),
        ({"StopSignal": "SIGNONE"}, ""),
        ({"StopSignal": None}, ""),
        ({}, ""),
    ],
)
def test_parses_the_signal_that_an_image_declares(declared: dict[str, Any], signal: str) -> None:
    answer = inspected(Status="running")
    answer["Config"] = {**answer["Config"], **declared}
    assert answers.container_of(answer, Process(42, 7)).stop_signal == signal


@pytest.mark.parametrize(
    ("user", "is_root"),
    [
        (None, True),
        ("", True),
        ("0", True),
        ("root:games", True),
        ("1000:0", False),
        ("game", False),
    ],
)
def test_user_of_an_image_is_root_unless_it_names_another(
    user: str | None, *, is_root: bool
) -> None:
    answer = inspected(Status="running")
    answer["Config"] = {**answer["Config"], "User": user}
    assert answers.container_of(answer, Process(42, 7)).starts_as_root is is_root


@pytest.mark.parametrize(
    ("networks", "address"),
    [
        ({"bridge": {"IPAddress": "172.17.0.2"}}, "172.17.0.2"),
        ({"bridge": {"IPAddress": ""}}, ""),
        ({"host": {"IPAddress": ""}}, ""),
        ({}, ""),
    ],
)
def test_parses_address_of_a_container(networks: dict[str, Any], address: str) -> None:
    answer = inspected(Status="running") | {"NetworkSettings": {"Networks": networks}}
    assert answers.container_of(answer, Process(42, 7)).address == address


def test_parses_ipv6_address_of_a_container_and_of_a_listed_one() -> None:
    network = {"IPAddress": "172.17.0.2", "GlobalIPv6Address": "2001:db8::2"}
    networks = {"NetworkSettings": {"Networks": {"bridge": network}}}
    inspected_one = answers.container_of(inspected(Status="running") | networks, Process(42, 7))
    entry = {"Id": "c", "Names": ["/c"], "State": "running", **networks}
    for found in (inspected_one, answers.container_of_listing(entry)):
        assert found.address == "172.17.0.2"
        assert found.ipv6_address == "2001:db8::2"


@pytest.mark.parametrize("status", ["exited", "dead", "removing"])
def test_parses_ended_container(status: str) -> None:
    state = {"Status": status, "Pid": 0, "ExitCode": 137, "OOMKilled": True}
    found = answers.container_of(inspected(**state, FinishedAt="2026-11-21T04:01:07Z"), None)
    assert answers.status_of(status) is ContainerStatus.ENDED
    assert found.status is ContainerStatus.ENDED
    assert found.exit_code == 137
    assert found.oom_killed is True
    assert found.end_time is not None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ExitCode", 2**31),
        ("ExitCode", -(2**31)),
        ("FinishedAt", "9999-99-99T00:00:00Z"),
    ],
)
def test_refuses_ended_container_out_of_bounds(field: str, value: object) -> None:
    ended = {"Status": "exited", "FinishedAt": "2026-11-21T04:01:07Z"}
    with pytest.raises(ValueError, match=r"is not|month must be"):
        answers.container_of(inspected(**ended | {field: value}), None)


@pytest.mark.parametrize(
    "pid",
    [
        -1,
        2**31,
    ],
)
def test_refuses_process_id_out_of_bounds(pid: int) -> None:
    with pytest.raises(ValueError, match="is not 0 to 2147483647"):
        answers.pid_of(inspected(Status="running", Pid=pid))


def test_refuses_image_of_negative_size() -> None:
    with pytest.raises(ValueError, match="-1 is not 0"):
        answers.references([{"Size": -1, "RepoDigests": ["r.example/game@sha256:0"]}])


def test_parses_listing_entry() -> None:
    entry = {
        "Id": "abc",
        "Names": ["/tiltyard-x"],
        "State": "exited",
        "Status": "Exited (3) 2 minutes ago",
        "Labels": {"a": "b"},
    }
    found = answers.container_of_listing(entry)
    assert found.status == ContainerStatus.ENDED
    assert found.exit_code == 3
    up = answers.container_of_listing(entry | {"State": "running", "Status": "Up 1s"})
    assert up.status == ContainerStatus.RUNNING
    assert up.exit_code is None


def test_references() -> None:
    whole = {"RepoDigests": ["a@sha256:1", "<none>@<none>"], "Size": 7}
    listed: list[dict[str, Any]] = [whole, {"RepoDigests": None}, {}]
    assert answers.references(listed) == {"a@sha256:1": 7}


def test_warnings_name_the_problem_and_the_fix() -> None:
    assert warnings_of(INFO, {}, own_network=False) == ()
    [warning] = warnings_of(INFO | {"LiveRestoreEnabled": False}, {}, own_network=False)
    assert "live-restore" in warning
    [warning] = warnings_of(INFO, {}, own_network=True)
    assert "icc" in warning
    assert len(warnings_of({}, {}, own_network=True)) == 7
    exposed = ["WARNING: API is accessible on http://0.0.0.0:2375 without encryption.\n  Access"]
    [warning] = warnings_of(INFO | {"Warnings": exposed}, {}, own_network=False)
    assert "TCP port is root on this host: take the tcp:// address out of" in warning
    assert warnings_of(INFO | {"Warnings": ["WARNING: bridge"]}, {}, own_network=False) == ()
    [warning] = warnings_of(INFO, {"hosts": ["tcp://0.0.0.0:2375"]}, own_network=False)
    assert "TCP port is root on this host" in warning


TIME = b"2026-01-02T03:04:05.000000006Z"


def frame(kind: int, payload: bytes, time: bytes = TIME) -> bytes:
    payload = payload if kind == 3 else time + b" " + payload
    return bytes([kind, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


@given(
    st.lists(st.tuples(st.integers(1, 2), st.binary(max_size=40)), max_size=8),
    st.lists(st.integers(1, 60), min_size=1, max_size=10),
)
def test_splits_frames_in_any_pieces(frames: list[tuple[int, bytes]], sizes: list[int]) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in frames)
    demultiplexer = Demultiplexer()
    seen = []
    lengths = itertools.cycle(sizes)
    while stream:
        size = next(lengths)
        seen += demultiplexer.feed(stream[:size])
        stream = stream[size:]
    assert seen == [LogPiece(kind, TIME, payload) for kind, payload in frames]
    assert demultiplexer.between_frames


@pytest.mark.parametrize(
    ("line", "frames"),
    [
        (b"a" * 16384 + b"b\n", [b"a" * 16384, b"b"]),
        (b"a" * 32768 + b"b\n", [b"a" * 16384, b"a" * 16384, b"b"]),
        (b"a" * 16384 + b"b\n", [b"a" * 16384, b"b\n"]),
        (b"a" * 32768 + b"\n", [b"a" * 16384, b"a" * 16384, b""]),
        (b"a" * 16383 + b"\n", [b"a" * 16383 + b"\n"]),
        (b"end", [b"end"]),
    ],
)
def test_restores_newline_after_long_line(line: bytes, frames: list[bytes]) -> None:
    """The `local` driver of 20.10.24 omits the newline; other engines keep it."""
    stream = b"".join(frame(1, payload) + frame(2, b"!\n") for payload in frames)
    pieces = [piece for piece in Demultiplexer().feed(stream) if piece.stream == 1]
    assert b"".join(piece.data for piece in pieces) == line
    assert [piece.begins_line for piece in pieces] == [True] + [False] * (len(frames) - 1)
    assert [piece.ends_line for piece in pieces] == [False] * (len(frames) - 1) + [True]


def test_engine_messages_are_not_part_of_the_log() -> None:
    demultiplexer = Demultiplexer()
    stream = frame(1, b"a") + frame(3, b"Error grabbing logs: unexpected EOF\n") + frame(2, b"b")
    assert [piece.data for piece in demultiplexer.feed(stream)] == [b"a", b"b"]
    assert demultiplexer.complaint == "Error grabbing logs: unexpected EOF"


@pytest.mark.parametrize(
    "stream",
    [
        b"hello wo",
        b"\4\0\0\0\0\0\0\1",
        b"\1\0\0\0\0\x10\0\1",
        frame(1, b"", b"now"),
    ],
)
def test_rejects_malformed_frames(stream: bytes) -> None:
    with pytest.raises(ValueError, match="frame"):
        Demultiplexer().feed(stream)


def test_sums_progress_of_layers() -> None:
    steps = PullSteps()
    progress = [
        steps.add(step)
        for step in (
            {"status": "Pulling from game", "id": "sha256:1"},
            {"status": "Pulling fs layer", "progressDetail": {}, "id": "a"},
            {"status": "Already exists", "id": "b"},
            {"status": "Downloading", "progressDetail": {"current": 5, "total": 9}, "id": "a"},
            {"status": "Downloading", "progressDetail": {"current": 3, "total": 9}, "id": "a"},
            {"status": "Extracting", "progressDetail": {"current": 90}, "id": "a"},
            {"status": "Pull complete", "progressDetail": {}, "id": "a"},
            {"status": "Digest: sha256:1"},
        )
    ]
    assert progress[0] == PullProgress()
    assert progress[4] == PullProgress(layers=2, layers_done=1, received_bytes=5, downloading=1)
    assert progress[5].downloading == 0
    assert progress[-1] == PullProgress(layers=2, layers_done=2, received_bytes=5)


def test_live_process_is_none_for_a_zombie() -> None:
    me = live_process(os.getpid())
    assert me is not None
    assert me.start_ticks > 0
    assert live_process(2**22 + 1) is None
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert live_process(child.pid) is None  # a zombie
