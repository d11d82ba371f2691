"""GET /logs with an offset: where a reader resumes."""

import pytest

from tests.support.controlplane.system import System, assert_error

pytestmark = pytest.mark.system(application={}, session="s")

WHOLE = b"line 1\nline 2\n"  # 14 bytes


@pytest.mark.parametrize("offset", [0, 1, 7, 13, 14])
@pytest.mark.parametrize("follow", ["true", "false"])
async def test_a_log_is_read_from_an_offset(system: System, offset: int, follow: str) -> None:
    system.agent.log.ended.set()
    answer = await system.call("GET", f"/logs?id=s&offset={offset}&follow={follow}")
    assert answer.status == 200
    assert answer.body == WHOLE[offset:]
    assert answer.headers["X-Log-Offset"] == str(offset)


async def test_an_offset_beyond_the_end_is_416(system: System) -> None:
    for follow in ("true", "false"):
        answer = await system.call("GET", f"/logs?id=s&offset=15&follow={follow}")
        assert_error(answer, 416, details="cannot read the log from byte 15: it ends at 14")
        assert answer.json["code"] == "OFFSET_BEYOND_END"


async def test_a_log_of_unknown_offsets_is_sent_from_what_is_left(system: System) -> None:
    system.agent.log.is_cut = True
    answer = await system.call("GET", "/logs?id=s&offset=1000")
    assert answer.status == 200
    assert answer.body == WHOLE
    assert answer.headers["X-Log-Offset"] == "unknown"


async def test_a_log_without_an_offset_has_no_header(system: System) -> None:
    answer = await system.call("GET", "/logs?id=s")
    assert answer.body == WHOLE
    assert "X-Log-Offset" not in answer.headers


async def test_proxies_are_asked_not_to_collect_a_log(system: System) -> None:
    answer = await system.call("GET", "/logs?id=s")
    assert answer.headers["X-Accel-Buffering"] == "no"


@pytest.mark.parametrize("offset", ["-1", "x", "1.5", "", "1152921504606846977"])
async def test_a_bad_offset_is_422(system: System, offset: str) -> None:
    assert_error(await system.call("GET", f"/logs?id=s&offset={offset}"), 422, "offset")
