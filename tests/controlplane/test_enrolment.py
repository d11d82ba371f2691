"""Enrolment of hosts: the scope of tokens, and the access rules of the listener."""

import asyncio
import hashlib
import logging
import ssl
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from controlplane.operators.enrolment import TOKEN_LIFE, TRIES_AT_ONCE
from tests.support.certificates import a_request
from tests.support.controlplane.enrolling import Enrolling
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import PATIENCE, Answer, assert_error, eventually
from tests.support.fake_clock import BootingClock

pytestmark = pytest.mark.system(kind=Enrolling)


async def test_host_is_enrolled_in_the_place_of_its_token(system: Enrolling) -> None:
    token = await system.token(region="elsewhere", nodePool="big")
    answer = (await system.enrol(token)).expect(201)
    assert answer.headers["Cache-Control"] == "no-store"
    body = answer.json
    assert body["name"] == "host-1"
    assert body["region"] == "elsewhere"
    assert body["nodePool"] == "big"
    shown = await system.shown()
    place = {"address": "192.0.2.7:7444", "region": "elsewhere", "nodePool": "big"}
    assert shown.items() >= place.items()
    assert shown["state"] == "connecting"
    made = x509.load_pem_x509_certificate(body["certificate"].encode())
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(body["authority"].encode()))
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [
        f"tiltyard://agent/{body['id']}"
    ]
    [row] = await system.rows(
        "SELECT id, certificate_serial, certificate_expire_ms FROM agent WHERE name='host-1'"
    )
    expire_ms = int(made.not_valid_after_utc.timestamp() * 1000)
    assert row == (body["id"], f"{made.serial_number:x}", expire_ms)
    assert shown["certificateExpires"] == expire_ms
    assert not shown["declared"]


@pytest.mark.system(kind=Enrolling, api_listen="0.0.0.0:0", behind_proxy=("192.0.2.0/24",))
async def test_hosts_enrol_past_the_proxies_of_the_api(system: Enrolling) -> None:
    assert (await system.enrol(await system.token())).status == 201


async def test_token_is_stored_as_a_hash_and_audited_by_its_id(
    system: Enrolling, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        token = await system.token()
        assert (await system.enrol(token)).status == 201
        assert (await system.enrol(token)).status == 401
    _, token_id, rest = token.split("_")
    secret = rest[:64]
    assert secret not in caplog.text
    stored = await system.rows("SELECT id, hex(secret_hash), region FROM enrolment_token")
    assert stored == [(token_id, hashlib.sha256(secret.encode()).hexdigest().upper(), "local")]
    events = await system.events("agent.%", "kind, actor, address, object, data")
    assert [event[:4] for event in events] == [  # without their data
        ("agent.token_created", system.operator_token.split("_")[1], "127.0.0.1", token_id),
        ("agent.enrolled", token_id, "127.0.0.1", "host-1"),
    ]
    assert secret not in str(events)


async def refused(system: Enrolling, answer: Answer, status: int, *fields: str) -> None:
    """No host was enrolled, and the log has the cause."""
    assert_error(answer, status, *fields)
    assert await system.names() == []


async def test_bad_token_is_refused(system: Enrolling, caplog: pytest.LogCaptureFixture) -> None:
    """Only the operator learns the cause."""

    async def is_refused(token: str, cause: str) -> None:
        caplog.clear()
        await refused(system, await system.enrol(token), 401)
        assert cause in caplog.text

    token = await system.token(region="elsewhere")
    await is_refused(token.replace("ty_", "tx_"), "it is none")
    await is_refused(token.replace(token.rpartition(".")[0], system.tokens["alice"]), "unknown")
    for change in ("UPDATE enrolment_token SET secret_hash=x'00'", "DELETE FROM enrolment_token"):
        await system.rows(change)
        await is_refused(token, "it is unknown")
    token = await system.token(region="elsewhere")
    system.clock.wall_ahead = TOKEN_LIFE
    await is_refused(token, "it has expired")
    token = await system.token(region="elsewhere")
    await system.rows("DELETE FROM region WHERE name='elsewhere'")
    await is_refused(token, "its region is gone")


async def test_token_enrols_one_host(system: Enrolling, caplog: pytest.LogCaptureFixture) -> None:
    token = await system.token()
    answers = await asyncio.gather(
        *(system.enrol(token, name=f"host-{number}") for number in range(8))
    )
    assert sorted(answer.status for answer in answers) == [201] + [401] * 7
    assert len(await system.names()) == 1
    assert "it was used before" in caplog.text


UNFIT: tuple[tuple[str, Any, str], ...] = (
    ("nodePool", "default", "the token is for big"),
    ("region", "elsewhere", "the token is for local"),
    ("request", a_request(subject="host-2").decode(), "requests a name or extensions"),
    ("request", "", ""),
    ("name", "../host", ""),
    ("name", "controlplane", ""),
    ("name", "", ""),
    ("address", None, ""),
    ("address", "unix:/run/docker.sock", ""),
    ("address", "192.0.2.7", ""),
    ("address", "192.0.2.7:0", ""),
    ("address", "192.0.2.7:65536", ""),
    ("address", "dns://a/b:1", ""),
    ("colour", "red", ""),
    ("format", 2, ""),
)
"""A field, its value, and the cause in the log."""


async def test_unfit_request_is_refused_and_the_token_stays_valid(
    system: Enrolling, caplog: pytest.LogCaptureFixture
) -> None:
    token = await system.token(region="local", nodePool="big")
    for field, wrong, cause in UNFIT:
        caplog.clear()
        await refused(system, await system.enrol(token, **{field: wrong}), 422, field)
        assert cause in caplog.text
    assert (await system.enrol(token, region="local", nodePool="big")).status == 201


async def test_taken_name_is_refused_and_the_token_stays_valid(system: Enrolling) -> None:
    assert (await system.enrol()).status == 201
    before = await system.shown()
    token = await system.token()
    assert_error(await system.enrol(token, address="192.0.2.66:1"), 409)
    assert await system.shown() == before
    assert (await system.enrol(token, name="host-2")).status == 201


async def test_agent_of_the_settings_file_is_not_taken_over(system: Enrolling) -> None:
    await system.add_agent("declared")
    before = await system.rows("SELECT id, address FROM agent WHERE name='declared'")
    assert_error(await system.enrol(name="declared"), 409)
    assert await system.rows("SELECT id, address FROM agent WHERE name='declared'") == before


async def test_token_enrols_until_its_15_minutes_have_passed(system: Enrolling) -> None:
    token = await system.token()
    system.clock.wall_ahead = 15 * 60 - PATIENCE
    assert (await system.enrol(token)).status == 201


async def test_token_enrols_again_only_an_agent_that_is_still_enrolled(
    system: Enrolling,
) -> None:
    """Not one that the settings file has declared since."""
    assert (await system.enrol()).status == 201
    token = await system.token_again("host-1")
    await system.rows("UPDATE agent SET id=NULL WHERE name='host-1'")
    assert_error(await system.enrol(token, address="192.0.2.66:1"), 401)
    assert await system.rows("SELECT id FROM agent WHERE name='host-1'") == [(None,)]


async def test_name_declared_later_belongs_to_the_settings_agent(
    system: Enrolling, tmp_path: Path
) -> None:
    assert (await system.enrol()).status == 201
    agent = FakeAgent(tmp_path, "host-1")
    system.agents.append(agent)
    await agent.start()
    await system.restart()
    shown = await system.shown()
    assert shown["declared"] is True
    assert shown["certificateExpires"] is None
    assert shown["state"] == "ready"
    assert_error(await system.operate("POST", "/agent/host-1/revoke"), 409)
    assert_error(await system.operate("POST", "/agent/host-1/token"), 404)
    await system.stop_serving()
    await agent.stop()


async def test_agent_enrols_again_only_with_a_token_for_it(system: Enrolling) -> None:
    await system.enrol(await system.token(region="elsewhere", nodePool="big"))
    [(first,)] = await system.rows("SELECT id FROM agent")
    token = await system.token_again("host-1")
    assert_error(await system.enrol(token, name="host-2"), 422, "name")
    answer = (await system.enrol(token, address="192.0.2.8:7444")).expect(201)
    place = {"address": "192.0.2.8:7444", "region": "elsewhere", "nodePool": "big"}
    assert (await system.shown()).items() >= place.items()
    assert answer.json["id"] != first  # the old certificate is no longer valid
    assert await system.names() == ["host-1"]
    assert_error(await system.enrol(token), 401)


@pytest.mark.parametrize(
    "gone_by",
    [
        ("POST /revoke", "DELETE "),
        ("DELETE ",),
        (),
    ],
)
async def test_token_for_an_agent_does_not_take_over_its_successor(
    system: Enrolling, gone_by: tuple[str, ...]
) -> None:
    """The successor is another agent of its name, or the same one enrolled again."""
    assert (await system.enrol()).status == 201
    kept = await system.token_again("host-1")
    token = None if gone_by else await system.token_again("host-1")
    for call in gone_by:
        method, path = call.split(" ")
        assert (await system.operate(method, f"/agent/host-1{path}")).status in {200, 204}
    assert (await system.enrol(token)).status == 201
    before = await system.rows("SELECT id, address FROM agent WHERE name='host-1'")
    assert_error(await system.enrol(kept, address="192.0.2.66:1"), 401)
    assert await system.rows("SELECT id, address FROM agent WHERE name='host-1'") == before


async def test_a_clock_far_ahead_does_not_stop_the_control_plane(
    system: Enrolling, caplog: pytest.LogCaptureFixture
) -> None:
    system.clock.wall_ahead = 20 * 365 * 24 * 3600.0  # the authority has expired by then
    await system.control_plane.renewal.renew()
    assert "cannot renew the control plane's own certificates" in caplog.text


async def test_a_wrong_clock_after_boot_removes_nothing_and_issues_nothing_that_lasts(
    system: Enrolling, caplog: pytest.LogCaptureFixture
) -> None:
    before = await system.rows("SELECT * FROM event")
    system.clock = clock = BootingClock(wall_ahead=10 * 365 * 24 * 3600.0)
    await system.restart()
    of_wrong_time = system.control_plane.issuer.caller
    assert "clock not synchronised" in caplog.text
    clock.wall_ahead = 0.0
    clock.synchronised = True
    await eventually(lambda: system.control_plane.issuer.caller is not of_wrong_time)
    assert before
    assert await system.rows("SELECT * FROM event") == before


async def test_token_requires_an_existing_region_and_node_pool(system: Enrolling) -> None:
    for body in ({"region": "nowhere"}, {"region": "local", "nodePool": "no"}):
        assert_error(await system.operate("POST", "/enrolment-token", json=body), 404)


async def test_enrolment_attempts_are_limited_per_address(system: Enrolling) -> None:
    system.control_plane.enrolment.rate.rate = 1e-6  # so that none is regained during the test
    answers = [await system.enrol("nothing") for _ in range(TRIES_AT_ONCE + 1)]
    assert [answer.status for answer in answers[:-1]] == [401] * TRIES_AT_ONCE
    assert_error(answers[-1], 503)
    assert int(answers[-1].headers["Retry-After"]) >= 1


async def test_request_without_a_token_returns_the_authority_alone(system: Enrolling) -> None:
    answer = (await system.ask({})).expect(200)
    der = ssl.PEM_cert_to_DER_cert(answer.json["authority"])
    assert (await system.token()).rpartition(".")[2] == hashlib.sha256(der).hexdigest()
    assert set(answer.json) == {"authority", "format"}


async def test_listener_serves_only_enrolment(system: Enrolling) -> None:
    for method, path, status in (
        ("GET", "/enrol", 405),
        ("POST", "/session", 404),
        ("GET", "/healthz", 404),
        ("GET", "/operator/agent", 404),
    ):
        assert_error(await system.ask(method=method, path=path), status)
    assert_error(await system.ask({"token": "x" * 40_000}), 413)


def a_client(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
    return context


async def test_tls_before_1_3_and_plain_text_are_refused_and_logged(
    system: Enrolling, caplog: pytest.LogCaptureFixture
) -> None:
    for version in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2) * 3:
        with pytest.raises(aiohttp.ClientError):
            await system.http.post(system.control_plane.enrol_url, ssl=a_client(version))
    in_clear = system.control_plane.enrol_url.replace("https", "http")
    with pytest.raises(aiohttp.ClientError):
        await system.http.post(f"{in_clear}/enrol", json={})
    logged = Counter(text for text in caplog.messages if "TLS handshake" in text)
    assert logged == {
        "refused TLS handshake kind=UNSUPPORTED_PROTOCOL": 6,
        "refused TLS handshake kind=HTTP_REQUEST": 1,
    }
