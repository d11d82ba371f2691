"""Reading sessions and joining players, compared with an empty handler of the same server.

The control plane adopts the sessions from hosts' reports, as after the loss of its database.
"""

import itertools
import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.bench import baseline
from tests.bench.fleet import a_fleet
from tests.bench.load import Ask, Load, a_flood, percentile, rate, run_load
from tests.bench.process_use import CpuMeter, in_turn
from tests.bench.report import Result
from tests.bench.simulated_agents import ACCOUNT, group, session_id
from tests.support.api_client import ApiClient
from tests.support.deployment import Steps
from tests.support.harness import ControlPlaneProcess, free_port

SESSIONS = 100_000
HOSTS = 100
CALLERS = 32
ROUNDS = 5
ASKS = 2000
LISTS = 10
CHOSEN = 5
FLOODERS = 256
FLOODED = 1000
NEIGHBOUR = "neighbour"
"""Connections of the flooding account, the sessions that it joins, and the other account."""
_LOOKS = re.compile(rb"\n\w+_database_look_duration_seconds_count (\S+)\n")
FILTERS: Mapping[str, Mapping[str, str]] = {
    "image": {"image": f"arena-{CHOSEN}"},
    "tag": {"tag": f"v{CHOSEN}"},
    "label": {"filter[lobby]": str(CHOSEN)},
}
"""Each finds the sessions of one group."""


def measure(effort: int, steps: Steps) -> list[Result]:
    """Run all rounds and return the medians."""
    sessions = effort * SESSIONS // 100
    rounds = max(1, effort * ROUNDS // 100)
    asks = max(100, effort * ASKS // 100)
    lists = max(2, effort * LISTS // 100)
    with _a_bench(sessions, steps) as bench:
        chosen = bench.sessions(asks)
        empty = Ask("GET", baseline.EMPTY, 200)
        describes = [[Ask("GET", f"/session/{session}", 200) for session in chosen]] * rounds
        with steps.step(f"read, describe, {rounds} x {asks}"):
            looks = bench.looks()
            described, described_cpu = bench.rounds(describes, empty)
            hit_rate = max(0.0, 1 - (bench.looks() - looks) / (rounds * asks))
        with steps.step(f"read, describe what has changed, {rounds} x {asks}"):
            guests = (f"guest-{number}" for number in itertools.count())
            changed, _ = bench.rounds(describes, empty, lambda: bench.join(chosen, next(guests)))
        with steps.step(f"read, join, {rounds} x {asks}"):
            joins = [_join(session) for session in bench.sessions(rounds * asks)]
            portions = [joins[first : first + asks] for first in range(0, len(joins), asks)]
            least = Ask("PUT", baseline.INSERT, 200, joins[0].body)
            joined, joined_cpu = bench.rounds(portions, least)
        with steps.step(f"read, lists, {rounds} x {lists} of each kind"):
            listed = {name: bench.listed(query, rounds, lists) for name, query in FILTERS.items()}
        with steps.step(f"read, one account floods, {rounds} x {asks // 4}"):
            alone, flooded = bench.flooded(rounds, asks // 4)
    return [
        *_figures("describe", described, described_cpu),
        Result("read.describe.hit_rate", hit_rate, "of all"),
        Result("read.describe.changed_ratio", rate(changed["ours"]) / rate(changed["least"]), "x"),
        *_figures("join", joined, joined_cpu),
        *(Result(f"read.list.{name}_ms", taken, "ms") for name, taken in listed.items()),
        Result("read.list_ms", max(listed.values()), "ms", most=2.5),
        Result("read.flood.alone_p99_ms", alone, "ms"),
        Result("read.flood.p99_ms", flooded, "ms"),
        Result("read.flood.ratio", flooded / alone, "x", most=2),
    ]


class _Bench:
    """A control plane with its sessions, and the baseline."""

    def __init__(
        self, control_plane: ControlPlaneProcess, url: str, sessions: int, metrics: str
    ) -> None:
        self._metrics = metrics
        self._control_plane = control_plane
        self._url = url
        self._sessions = list(itertools.product(range(HOSTS), range(sessions // HOSTS)))

    def sessions(self, count: int) -> list[str]:
        """Return the ids of the first sessions, repeated if there are fewer."""
        found = itertools.islice(itertools.cycle(self._sessions), count)
        return [session_id(*session) for session in found]

    def looks(self) -> float:
        """Return how often the control plane has read a few rows of the database."""
        with urlopen(f"http://{self._metrics}/metrics") as answer:
            return float(_LOOKS.findall(answer.read())[0])

    def join(self, sessions: Sequence[str], player: str) -> None:
        """Add a player to each session."""
        self._ask([_join(session, player) for session in sessions], CALLERS)

    def rounds(
        self, portions: Sequence[Sequence[Ask]], least: Ask, before: Callable[[], object] = bool
    ) -> tuple[dict[str, list[Load]], float]:
        """Send the requests of each round after `before`, and as many to the baseline.

        Also return the control plane's CPU time per request, in milliseconds.
        """
        cpu = CpuMeter({"": [self._control_plane.process.pid]})
        left = iter(portions)
        count = len(portions[0])

        def ours() -> Load:
            before()
            return cpu.measure(lambda: self._ask(next(left), CALLERS), count)

        def theirs() -> Load:
            return run_load(self._url, [least] * count, callers=CALLERS)

        loads = in_turn(len(portions), {"ours": ours, "least": theirs})
        return loads, statistics.median(cpu.per_piece[""])

    def listed(self, query: Mapping[str, str], rounds: int, count: int) -> float:
        """Return the milliseconds of one list request."""
        found = self._control_plane.client(ACCOUNT).get("/session", **query).expect(200)
        wanted = sum(group(*session) == CHOSEN for session in self._sessions)
        if len(found.json()["sessions"]) != wanted:
            raise RuntimeError(f"{query} finds {len(found.json()['sessions'])} sessions")
        ask = Ask("GET", f"/session?{urlencode(query)}", 200)
        taken = [self._ask([ask] * count, 1).times for _ in range(rounds)]
        return statistics.median(map(statistics.median, taken))

    def flooded(self, rounds: int, count: int) -> tuple[float, float]:
        """Return the 99th percentile, in ms, of another account's calls, alone and during a flood.

        These calls are reads and transactions.
        """
        url = self._control_plane.base_url
        operator = ApiClient(url, self._control_plane.operator_token)
        token = operator.post("/operator/account", {"name": NEIGHBOUR}).expect(201).json()["token"]
        body = json.dumps({"players": ["nobody"]})
        reads = Ask("GET", "/session", 200)
        asks = [reads, Ask("DELETE", "/session/player/leave", 404, body)] * (count // 2)
        flood = [_join(session_id(*session)) for session in self._sessions[:FLOODED]]
        flooder = self._control_plane.tokens[ACCOUNT]

        def by_itself() -> Load:
            return run_load(url, asks, callers=1, token=token)

        def beside_a_flood() -> Load:
            with a_flood(url, flood, callers=FLOODERS, token=flooder):
                return by_itself()

        alone, beside = (
            statistics.median(percentile(load.times, 99) for load in loads)
            for loads in in_turn(rounds, {"alone": by_itself, "beside": beside_a_flood}).values()
        )
        return alone, beside

    def _ask(self, asks: Sequence[Ask], callers: int) -> Load:
        token = self._control_plane.tokens[ACCOUNT]
        return run_load(self._control_plane.base_url, asks, callers=callers, token=token)


def _join(session: str, player: str = "somebody") -> Ask:
    body = json.dumps({"session": session, "players": [player]})
    return Ask("PUT", "/session/player/join", 200, body)


def _figures(
    name: str, rounds: Mapping[str, Sequence[Load]], controlplane_ms: float
) -> list[Result]:
    ours = rate(rounds["ours"])
    least = rate(rounds["least"])
    return [
        Result(f"read.{name}.per_s", ours, "/s"),
        Result(f"read.{name}.least_per_s", least, "/s"),
        Result(f"read.{name}.ratio", ours / least, "x", least=0.5),
        Result(f"read.{name}.controlplane.cpu_ms", controlplane_ms, "ms"),
    ]


@contextmanager
def _a_bench(sessions: int, steps: Steps) -> Iterator[_Bench]:
    metrics = f"127.0.0.1:{free_port()}"
    fleet_of = a_fleet(HOSTS, sessions // HOSTS, steps, metrics_listen=metrics)
    with fleet_of as fleet, baseline.a_baseline() as least:
        yield _Bench(fleet.control_plane, least, sessions, metrics)
