"""`tiltyard-agent enrol`, against a control plane and against an impostor."""

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from agent.cli.main import main
from agent.rpc.identity import FILE, Identity
from tests.support.certificates import SERVES, Party, Signer
from tests.support.controlplane.enrolling import ENROLMENT_HOST, Enrolling
from tiltyard.runtime.settings import EXIT_CONFIG

SETTINGS = 'rpc_listen = "0.0.0.0:7444"\npublic_address = "192.0.2.7"\n'


class Machine:
    """A machine with the settings of an agent."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "agent"
        self.config = folder / "agent.toml"
        self.config.write_text(f'state_dir = "{self.state}"\n{SETTINGS}')

    async def enrol(self, url: str, token: str, *options: str) -> Result:
        """Run the command; the token comes from standard input."""
        command = ["enrol", url, "--config", str(self.config), "--name", "host-1", *options]
        return await asyncio.to_thread(CliRunner().invoke, main, command, token + "\n")

    async def identity(self) -> Identity | None:
        return await asyncio.to_thread(Identity.read, self.state / FILE)

    async def refused(self, reason: str, url: str, token: str, *options: str) -> None:
        """Check that it prints one line with the cause and keeps nothing."""
        result = await self.enrol(url, token, *options)
        assert result.exit_code == 1, result.output
        assert reason in result.stderr
        assert result.stderr.count("\n") == 1
        assert await self.identity() is None


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[Enrolling]:
    async with Enrolling(tmp_path) as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_a_host_enrols_with_a_token_file(system: Enrolling, machine: Machine) -> None:
    path = machine.config.with_suffix(".token")
    await asyncio.to_thread(path.write_text, await system.token())
    result = await machine.enrol(system.control_plane.enrol_url, "", "--token-file", str(path))
    assert result.output == (
        "enrolled as host-1 in region local, node pool default; called at 192.0.2.7:7444\n"
    )
    assert (await system.shown())["address"] == "192.0.2.7:7444"
    identity = await machine.identity()
    assert identity is not None
    assert identity.authority == system.control_plane.enrolment.authority
    [(agent_id,)] = await system.rows("SELECT id FROM agent")
    assert identity.uri == f"tiltyard://agent/{agent_id}"
    assert (machine.state / FILE).stat().st_mode & 0o777 == 0o600


async def test_failed_enrolment_prints_its_cause_and_leaves_the_token_valid(
    system: Enrolling, machine: Machine
) -> None:
    url = system.control_plane.enrol_url
    token = await system.token()
    text, _, fingerprint = token.partition(".")
    for reason, asked, shown, *options in (
        ("not an enrolment token", url, "nothing"),
        ("not an enrolment token", url, text),
        ("is not of the form https://HOST:7443", url.replace("https", "http"), token),
        ("is not of the form https://HOST:7443", f"{url}/session", token),
        ("is not of the form https://HOST:7443", "https://[::1:7443", token),
        ("1:1/enrol: Connection refused\n", "https://127.0.0.1:1", token),
        ("cannot reach", "https://a..b:1", token),
        ("nothing was sent", url, f"{text}.{fingerprint[::-1]}"),
        ("422 region: the token is for local", url, token, "--region", "eu"),
        ("422 nodePool: the token is for default", url, token, "--node-pool", "big"),
    ):
        await machine.refused(reason, asked, shown, *options)
    assert (await machine.enrol(url, token)).exit_code == 0


async def test_used_token_is_refused(system: Enrolling, machine: Machine) -> None:
    url = system.control_plane.enrol_url
    token = await system.token()
    assert (await machine.enrol(url, token)).exit_code == 0
    (machine.state / FILE).unlink()
    await machine.refused("401 bearer token incorrect: it was used", url, token)


async def test_missing_token_file_is_reported(machine: Machine) -> None:
    result = await machine.enrol("https://127.0.0.1:1", "", "--token-file", "/nowhere")
    assert result.exit_code == 2
    assert "'/nowhere': No such file or directory" in result.stderr


async def test_host_that_could_not_be_called_is_not_enrolled(
    system: Enrolling, machine: Machine
) -> None:
    machine.config.write_text('public_address = "192.0.2.7"\n')
    result = await machine.enrol(system.control_plane.enrol_url, await system.token())
    assert result.exit_code == EXIT_CONFIG
    assert "rpc_listen must be set" in result.stderr


@asynccontextmanager
async def posing(
    folder: Path, party: Party, answer: Callable[[Any], Mapping[str, object]]
) -> AsyncIterator[tuple[str, list[Any]]]:
    """Serve as a fake control plane; yield its address and what it received."""
    received: list[Any] = []

    async def enrol(request: web.Request) -> web.Response:
        received.append(await request.json())
        return web.json_response(answer(received[-1]))

    def context() -> ssl.SSLContext:
        pem = folder / "party.pem"
        pem.write_bytes(party.key + party.certificate)
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.load_cert_chain(pem)
        return made

    app = web.Application()
    app.router.add_post("/enrol", enrol)
    server = TestServer(app)
    await server.start_server(ssl=await asyncio.to_thread(context))
    async with server:
        yield f"https://127.0.0.1:{server.port}", received


Pose = Callable[[Signer], Party]
POSES: dict[str, Pose] = {
    "an agent": lambda ours: ours.sign(SERVES, ["tiltyard://agent/x"], ["x.agent.example"]),
    "another authority's": lambda _: Signer.new().sign(SERVES, hosts=[ENROLMENT_HOST]),
}


async def signer_of(system: Enrolling) -> Signer:
    path = system.config.state_dir / "authority.pem"
    return Signer.of(await asyncio.to_thread(path.read_bytes))


@pytest.mark.parametrize("kind", POSES)
async def test_impostor_does_not_receive_the_token(
    system: Enrolling, machine: Machine, tmp_path: Path, kind: str
) -> None:
    """It has the public certificate of the authority, and even one of its signatures."""
    ours = await signer_of(system)
    token = await system.token()
    authority = {"authority": ours.certificate.decode()}
    async with posing(tmp_path, POSES[kind](ours), lambda _: authority) as (url, received):
        await machine.refused("cannot reach", url, token)
    assert token.partition(".")[0] not in json.dumps(received)
    assert len(received) == 1


async def test_data_after_the_authority_is_not_trusted(machine: Machine, tmp_path: Path) -> None:
    """Base64 decoding may stop at padding where PEM continues: the rest was never verified."""
    ours = next(one for one in map(Signer.new, "abcdefgh" * 9) if b"=" in one.certificate)
    theirs = Signer.new("man in the middle")
    both = {"authority": (ours.certificate + theirs.certificate).decode()}
    der = ssl.PEM_cert_to_DER_cert(ours.certificate.decode())
    secret = f"ty_{'0' * 16}_{'1' * 72}"
    party = theirs.sign(SERVES, hosts=[ENROLMENT_HOST])
    async with posing(tmp_path, party, lambda _: both) as (url, received):
        token = f"{secret}.{hashlib.sha256(der).hexdigest()}"
        await machine.refused("is not the control plane that issued the token", url, token)
    assert received == [{}]


async def test_a_newer_control_plane_says_so_and_does_not_receive_the_token(
    system: Enrolling, machine: Machine, tmp_path: Path
) -> None:
    ours = await signer_of(system)
    token = await system.token()
    party = ours.sign(SERVES, hosts=[ENROLMENT_HOST])
    newer = {"format": 2, "authority": ours.certificate.decode()}
    async with posing(tmp_path, party, lambda _: newer) as (url, received):
        await machine.refused("is of another version: this agent knows 1", url, token)
    assert received == [{}]


async def test_a_certificate_for_another_key_is_not_kept(
    system: Enrolling, machine: Machine, tmp_path: Path
) -> None:
    ours = await signer_of(system)
    token = await system.token()
    authority = ours.certificate.decode()
    another = ours.sign(SERVES, ["tiltyard://agent/x"]).certificate.decode()
    complete = {"name": "host-1", "region": "local", "nodePool": "default"}
    party = ours.sign(SERVES, hosts=[ENROLMENT_HOST])
    answers: list[tuple[str, dict[str, str]]] = [
        ("for another key", {"certificate": another, **complete}),
        ("", {"certificate": another, "name": "host-1"}),
        ("an unexpected response", {}),
    ]
    for cause, answer in answers:

        def reply(body: Any, answer: dict[str, str] = answer) -> dict[str, str]:
            return answer if body else {"authority": authority}

        async with posing(tmp_path, party, reply) as (url, _):
            await machine.refused(cause, url, token)
