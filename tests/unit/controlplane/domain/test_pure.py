import json
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.applications.applications import local_repository
from controlplane.domain.access import tokens
from controlplane.domain.access.quotas import Quota, Usage, exceeded_limit
from controlplane.domain.access.start_rate import SWEEP, StartRate
from controlplane.domain.access.tokens import Scope
from controlplane.domain.applications.registries import Registry
from controlplane.domain.durations import parse_duration
from controlplane.domain.json_reader import MAX_VALUES, count_values, read_json
from controlplane.domain.sessions.status import shown_status
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import EndReason, ErrorReason, State


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h", 3600),
        ("90m", 5400),
        ("1h1m", 3660),
        ("0m", 60),
        ("0h0m", 60),
        ("8760h", 31536000),
    ],
)
@pytest.mark.part_alone
def test_f28_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "1", "m", "h", "1m1h", "1h ", " 1h", "1h\n", "-1h", "1.5h", "٣h", "1H", "1s", "8760h1m"],
)
@pytest.mark.part_alone
def test_f28_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_duration(text)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"[1,]",
        b"'a'",
        b"NaN",
        b"[-Infinity]",
        b"1e999",
        b'{"a":1,"a":2}',
        b'{"x":{"a":1,"a":2}}',
        b'"\\u0000"',
        b'{"a\\u0000":1}',
        b'["\\ud800"]',
        b"9223372036854775808",
        b"-9223372036854775809",
        b"1" * 5000,
        b"[" * 33 + b"]" * 33,
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(is|contains|holds|repeats)"):
        read_json(body)


def test_position_of_an_error_in_json_is_counted_in_bytes() -> None:
    with pytest.raises(ValueError, match=r"at byte 9$"):
        read_json('["é€" 1]'.encode())


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
    max_leaves=20,
)


@given(_JSON)
def test_valid_json_is_read_as_python_does(value: object) -> None:
    assert read_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", ["48", "48.0", "4.8e1", "480e-1"])
def test_whole_numbers_are_integers_in_any_notation(text: str) -> None:
    read = read_json(text.encode())
    assert read == 48
    assert type(read) is int


@pytest.mark.parametrize("text", ["48.5", "1e16", "-1e300"])
def test_other_numbers_are_floats(text: str) -> None:
    read = read_json(text.encode())
    assert read == float(text)
    assert type(read) is float


@pytest.mark.parametrize(
    "deepest",
    [
        b"[]",
        b"[],[]",
        b'[],"\\u0041"',
    ],
)
def test_nesting_of_32_levels_is_read(deepest: bytes) -> None:
    assert read_json(b"[" * 31 + deepest + b"]" * 31)


def _count(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + _count(item) for item in value.values())
    return 1 + (sum(map(_count, value)) if isinstance(value, list) else 0)


@given(_JSON | st.text('[{,:"\\\\]'), st.booleans())
def test_values_are_counted_before_they_are_decoded(value: object, ascii_only: bool) -> None:
    """An empty list counts as if it had an item; contents of strings do not count."""
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    least = _count(value)
    assert least <= count_values(text) <= 2 * least


@pytest.mark.parametrize("text", [b"[1,", b'{"":1,', b"[[],", b'["",', b'[{"a":', b"[", b":"])
def test_too_many_values_are_refused_before_anything_is_decoded(text: bytes) -> None:
    """So invalid JSON, too, is refused for their number."""
    with pytest.raises(ValueError, match="contains more than 10000 values"):
        read_json(text * 10_000)


def test_the_number_of_values_is_limited() -> None:
    most = b"[" + b"1," * (MAX_VALUES - 2) + b"1]"
    assert len(read_json(most)) == MAX_VALUES - 1
    with pytest.raises(ValueError, match="contains more than"):
        read_json(most.replace(b"1]", b"1,1]"))


@pytest.mark.parametrize(
    ("state", "draining", "responsive", "status"),
    [
        (State.CREATED, False, True, "created"),
        (State.RUNNING, False, True, "running"),
        (State.RUNNING, True, True, "draining"),
        (State.RUNNING, True, False, "server_unreachable"),
        (State.RESTARTING, True, True, "restarting"),
        (State.RESTARTING, False, False, "server_unreachable"),
        (State.SHUTTINGDOWN, True, True, "shuttingdown"),
        (State.SHUTTINGDOWN, False, False, "server_unreachable"),
        (State.EXITED, True, False, "exited"),
        (State.DEAD, True, False, "dead"),
    ],
)
def test_status_of_a_session(state: State, draining: bool, responsive: bool, status: str) -> None:
    assert shown_status(state, draining=draining, responsive=responsive) == status


@pytest.mark.parametrize(
    ("quota", "usage", "limit"),
    [
        (Quota(), Usage(10**6, 10**12, 10**12), None),
        (Quota(sessions=2), Usage(2, 0, 0), None),
        (Quota(sessions=2), Usage(3, 0, 0), "sessions"),
        (Quota(sessions=0), Usage(1, 0, 0), "sessions"),
        (Quota(nano_cpus=10), Usage(9, 10, 0), None),
        (Quota(nano_cpus=10), Usage(9, 11, 0), "cores"),
        (Quota(memory_bytes=10), Usage(9, 0, 11), "memory"),
    ],
)
def test_limit_that_a_usage_exceeds(quota: Quota, usage: Usage, limit: str | None) -> None:
    assert exceeded_limit(quota, usage) == limit


def test_a_start_rate_empties_and_refills() -> None:
    rate = StartRate(rate=2, burst=3)
    assert [rate.take("a", "eu", 0.0) for _ in range(4)] == [None, None, None, 1]
    assert rate.take("b", "eu", 0.0) is None
    assert rate.take("a", "us", 0.0) is None
    assert [rate.take("a", "eu", 1.0) for _ in range(3)] == [None, None, 1]
    assert [rate.take("a", "eu", 99.0) for _ in range(4)] == [None, None, None, 1]


def test_give_back_undoes_a_take() -> None:
    rate = StartRate(rate=1, burst=1)
    assert rate.take("a", "eu", now=0.0) is None
    rate.give_back("a", "eu")
    assert rate.take("a", "eu", now=0.0) is None
    assert rate.take("a", "eu", now=0.0) == 1


class _Account(str):
    """A name that shows whether anything still refers to it."""

    __slots__ = ("__weakref__",)


def test_full_buckets_of_starts_are_dropped_and_no_other() -> None:
    rate = StartRate(rate=1, burst=2)
    kept = WeakSet[_Account]()
    for number in range(2000):  # ten accounts a second, each of which is full again after one
        account = _Account(number)
        kept.add(account)
        assert rate.take(account, "eu", number / 10) is None
        assert len(kept) <= SWEEP + 1
    partly = StartRate(rate=1, burst=2)
    for number in range(3 * SWEEP):
        assert partly.take(f"a{number}", "eu", 0.0) is None
    assert [partly.take("a0", "eu", 0.0) for _ in range(2)] == [None, 1]
    crowded = StartRate(rate=1, burst=1)
    for _ in range(2):
        answers = [crowded.take(f"a{number}", "eu", 0.0) for number in range(3 * SWEEP)]
    assert set(answers) == {1}  # buckets that are not full stay


def test_a_token_is_found_and_compared() -> None:
    made = tokens.mint()
    presented = tokens.parse(made.text)
    assert presented is not None
    assert presented.token_id == made.token_id
    assert tokens.matches(presented, made.secret_hash)
    assert not tokens.matches(presented, tokens.mint().secret_hash)
    assert not tokens.matches(presented, None)


@given(st.integers(0, 200), st.characters(codec="ascii"))
def test_a_changed_token_is_invalid(index: int, character: str) -> None:
    text = tokens.mint().text
    index %= len(text)
    changed = text[:index] + character + text[index + 1 :]
    assert changed == text or tokens.parse(changed) is None


def test_implied_scopes() -> None:
    assert tokens.grants({Scope.SESSION_START}, Scope.SESSION_PLAYERS)
    assert not tokens.grants({Scope.SESSION_PLAYERS}, Scope.SESSION_START)


@pytest.mark.parametrize(
    ("address", "repository", "local"),
    [
        ("127.0.0.1:5000", "studio/game", "studio/game"),
        ("127.0.0.1:5000", "127.0.0.1:5000/studio/game", "studio/game"),
        ("127.0.0.1:5000", "hub/studio/game", "studio/game"),
        ("127.0.0.1:5000", "game", "game"),
        ("registry-1.docker.io", "alpine", "library/alpine"),
        ("registry-1.docker.io", "me/alpine", "me/alpine"),
        ("127.0.0.1:5000", "Studio/game", None),
        ("127.0.0.1:5000", "other.example:5000/game", None),
        ("127.0.0.1:5000", "a//b", None),
        ("127.0.0.1:5000", "a/../b", None),
        ("127.0.0.1:5000", "a?b", None),
        ("127.0.0.1:5000", "a@sha256:0", None),
        ("127.0.0.1:5000", "", None),
        ("127.0.0.1:5000", "a" * 256, None),
    ],
)
def test_repositories(address: str, repository: str, local: str | None) -> None:
    assert local_repository(Registry("r", address, ("hub",)), repository) == local


def test_names_match_the_contract() -> None:
    def names(numbers: list[str], prefix: str) -> set[str]:
        return {name.removeprefix(prefix) for name in numbers} - {"UNSPECIFIED"}

    assert names(agent_pb2.ErrorReason.keys(), "ERROR_REASON_") == set(ErrorReason.__members__)
    assert names(agent_pb2.State.keys(), "STATE_") == set(State.__members__)
    assert names(agent_pb2.EndReason.keys(), "END_REASON_") == set(EndReason.__members__)
