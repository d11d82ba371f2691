"""Logs over HTTP, live and sealed, compared with `docker logs`; and many followers of a session.

Both are read alternately, discarded, and compared by bytes per second: a sealed log may have been
truncated.
"""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial

from agent.logs.reading import EACH_SESSION
from tests.bench.played import Played, download, output_bytes, play, to_nowhere
from tests.bench.process_use import in_turn, seconds
from tests.bench.report import Result
from tests.support.api_client import ApiClient
from tests.support.deployment import PATIENT, Deployment, Steps
from tests.support.harness import wait_until

LOG_BYTES = 60_000_000
FOLLOWERS = EACH_SESSION
LINES_PER_SECOND = 10
SECONDS = 20
ROUNDS = 3

_MB = 1_000_000
_SILENT_SECONDS = 20.0  # A follower gets ten lines per second
_SEAL_SECONDS = 60


def measure(effort: int, steps: Steps) -> list[Result]:
    """Read one log in all ways, then follow another."""
    size = effort * LOG_BYTES // 100
    followers = max(4, effort * FOLLOWERS // 100)
    seconds = max(5, effort * SECONDS // 100)
    with Deployment(steps, **PATIENT) as deployment:
        with steps.step(f"logs, {size / _MB:g} MB are written"):
            session = play(
                deployment, "--flood=0", f"--flood-bytes={size}", "--lines-per-second=0"
            )
            session.wait_for_line("flood over")
        with steps.step(f"logs, live, {ROUNDS} rounds"):
            live = _read_in_turn("live", deployment, session)
        with steps.step("logs, sealed"):
            deployment.client.delete_session(session.id).expect(204)
            sealed_logs = partial(deployment.agent.state_dir.glob, "sessions/*/log")
            wait_until(lambda: any(sealed_logs()), "the log is not sealed", _SEAL_SECONDS)
        with steps.step(f"logs, sealed, {ROUNDS} rounds"):
            sealed = _read_in_turn("sealed", deployment, session)
        with steps.step(f"logs, {followers} followers for {seconds} s"):
            session = play(deployment, f"--lines-per-second={LINES_PER_SECOND}")
            lags = _followed(deployment.client, session, followers, seconds)
        return [
            *live,
            *sealed,
            Result("logs.followers.median_lag_s", statistics.median(lags), "s"),
            Result("logs.followers.lag_s", statistics.quantiles(lags, n=100)[98], "s", most=1),
        ]


def _read_in_turn(state: str, deployment: Deployment, session: Played) -> list[Result]:
    def read() -> int:
        return download(deployment.client, "/logs", id=session.id)

    command = f"docker logs {session.container.name}"
    ways = {"ours": read, "docker": lambda: to_nowhere(command)}
    taken = in_turn(ROUNDS, {name: partial(seconds, way) for name, way in ways.items()})
    ours = read() / _MB / statistics.median(taken["ours"])
    docker = output_bytes(f"{command} 2>&1") / _MB / statistics.median(taken["docker"])
    return [
        Result(f"logs.{state}.mb_s", ours, "MB/s"),
        Result(f"logs.{state}.docker_logs_mb_s", docker, "MB/s"),
        Result(f"logs.{state}.ratio", ours / docker, "x", least={"live": 0.7, "sealed": 3}[state]),
    ]


def _followed(client: ApiClient, session: Played, followers: int, seconds: int) -> list[float]:
    """Return, per line written while all followed, the seconds until the last follower had it."""
    end = time.time() + seconds
    with ThreadPoolExecutor(followers) as threads:
        arrivals = list(threads.map(lambda _: _arrivals(client, session, end), range(followers)))
    begin = max(min(had.values()) for had in arrivals)
    lines = [line for line in set().union(*arrivals) if begin <= _written(line) <= end]
    assert lines, "not all followed before the time was over"
    return [max(had[line] for had in arrivals) - _written(line) for line in lines]


def _arrivals(client: ApiClient, session: Played, end: float) -> dict[str, float]:
    """Follow a log up to a line that was written after `end`; return when each line arrived."""
    had: dict[str, float] = {}
    with client.stream("/logs", id=session.id, follow="true", timeout=_SILENT_SECONDS) as log:
        while line := log.readline().decode():
            had[line] = time.time()
            if _written(line) > end:
                return had
    raise ConnectionError("the stream has ended")


def _written(line: str) -> float:
    return datetime.fromisoformat(line.split()[1]).timestamp()
