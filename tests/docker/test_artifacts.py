"""Artifacts of real containers: hostile trees, stalled readers and errors."""

import asyncio
import contextlib
import gzip
import random
import socket
import tarfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from agent.artifacts.fetching import BATCH_BYTES, Artifacts, FetchTimeouts, checked_path
from agent.artifacts.spool_room import SpoolRoom
from agent.docker.engine import DockerEngine
from agent.domain.errors import ArtifactTooLargeError, EngineTimeoutError, PathNotFoundError
from agent.state.record import Records
from tests.demo_game import Image, compiled
from tests.docker.stack import Stack, a_stack
from tests.support.agent.hosts import until
from tests.support.agent.tars import Entry, folder, read, tar_of
from tests.support.harness import Registry
from tests.support.pushed_image import push_image

SOURCE = Path(__file__).with_name("tree.c")
MEGABYTE = 10**6
HOST_FOLDERS = b"/var/lib/docker"
NOISE = random.Random(1).randbytes(30 * MEGABYTE)  # More than all buffers between agent and caller
MakeTree = Callable[..., Any]  # Runs a container that makes a tree; returns it after its end


@pytest.fixture(scope="module")
def image(docker_engine: Path, registry: Registry) -> Iterator[tuple[docker.DockerClient, str]]:
    make = Entry(b"make", content=compiled(SOURCE).read_bytes(), mode=0o755)
    unique = Entry(b"unique", content=uuid.uuid4().bytes)
    config = {"Entrypoint": ["/make"], "User": ""}
    image = push_image(registry.address, "tree", entries=[make, unique], config=config).reference
    with contextlib.closing(docker.DockerClient(f"unix://{docker_engine}", timeout=60)) as client:
        client.images.pull(image)
        yield client, image
        client.images.remove(image, force=True)


@pytest.fixture
def make(image: tuple[docker.DockerClient, str]) -> Iterator[MakeTree]:
    client, reference = image
    made = []

    def make(*args: object) -> Any:
        container = client.containers.create(
            reference,
            [str(arg) for arg in args],
            name=f"tiltyard-test-{uuid.uuid4().hex}",
            network_disabled=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
        )
        made.append(container)
        container.start()
        assert container.wait(timeout=50)["StatusCode"] == 0, container.logs()
        return container

    yield make
    for container in made:
        with contextlib.suppress(docker.errors.NotFound):
            container.remove(force=True)


class CountingEngine(DockerEngine):
    """Counts archives and the bytes read from them."""

    archives = 0
    read_bytes = 0

    @contextlib.asynccontextmanager
    async def archive(self, container: str, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async def counted(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for chunk in chunks:
                self.read_bytes += len(chunk)
                yield chunk

        self.archives += 1
        async with super().archive(container, path) as chunks:
            yield counted(chunks)


@pytest.fixture
async def engine(docker_engine: Path) -> AsyncIterator[CountingEngine]:
    engine = CountingEngine(str(docker_engine))
    yield engine
    await engine.close()


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[Records]:
    records = Records(tmp_path / "state")
    await records.open()
    yield records
    await records.close()


@pytest.fixture
def artifacts(engine: CountingEngine, records: Records) -> Artifacts:
    return a_few(engine, records)


def a_few(engine: DockerEngine, records: Records, **timeouts: float) -> Artifacts:
    room = SpoolRoom(10**9, 101 * MEGABYTE, patience=5.0)
    return Artifacts(engine, records, room, timeouts=FetchTimeouts(**timeouts))


async def fetched(artifacts: Artifacts, container: Any, path: str) -> bytes:
    """Fetch the decompressed tar of a path."""
    packed = bytearray()

    async def send(chunk: bytes) -> None:
        packed.extend(chunk)

    await artifacts.fetch(container.name, path, send, account="acme")
    return gzip.decompress(packed)


async def test_hostile_tree_is_sanitised(artifacts: Artifacts, make: MakeTree) -> None:
    container = make("hostile")

    def content(name: bytes, mode: int = 0o644) -> tuple[bytes, ...]:
        return name, tarfile.REGTYPE, b"content\n", b"", b"%o" % mode

    found = read(await fetched(artifacts, container, "/tree"))
    shown = {
        (entry.name, entry.kind, entry.content, entry.link, b"%o" % entry.mode) for entry in found
    }
    assert shown == {
        (b"tree", tarfile.DIRTYPE, b"", b"", b"755"),
        content(b"tree/setuid", 0o755),
        (b"tree/sticky", tarfile.DIRTYPE, b"", b"", b"777"),
        content(b"tree/one"),
        (b"tree/two", tarfile.LNKTYPE, b"", b"tree/one", b"644"),
        (b"tree/soft", tarfile.SYMTYPE, b"", b"/etc/passwd", b"777"),
        (b"tree/soft-two", tarfile.LNKTYPE, b"", b"tree/soft", b"777"),
        content(b"tree/new\nline\r"),
        content(b"tree/escape\x1b[31m"),
        content(b"tree/bytes\xff\xfe"),
        content(b"tree/" + b"n" * 150),
        (b"tree/" + b"m" * 255, tarfile.DIRTYPE, b"", b"", b"755"),
        content(b"tree/" + b"m" * 255 + b"/" + b"m" * 255),
    }
    for path in ("/tree/fifo", "/tree/fifo-two", "/tree/socket"):
        with pytest.raises(PathNotFoundError):
            await fetched(artifacts, container, path)


async def test_fetches_the_whole_container(artifacts: Artifacts, make: MakeTree) -> None:
    container = make("links", "/nowhere")
    whole = read(await fetched(artifacts, container, "/"))
    assert whole[0].name == b"."
    assert {b"./make", b"./tree", b"./tree/file"} < {entry.name for entry in whole}


@pytest.mark.parametrize(
    "path",
    [
        "/tree/root",
        "/tree/root/",
        "/tree/root/.",
        "/tree/../tree/root//",
    ],
)
async def test_a_path_that_is_a_link_has_what_it_leads_to(
    artifacts: Artifacts, make: MakeTree, path: str
) -> None:
    container = make("links", "/nowhere")
    found = read(await fetched(artifacts, container, path))
    assert found[0].name == b"root"
    assert {b"root/make", b"root/tree", b"root/tree/file"} < {entry.name for entry in found}
    [link] = [entry for entry in found if entry.name == b"root/tree/root"]
    assert link.kind == tarfile.SYMTYPE  # below the path, links stay links


@pytest.mark.parametrize("name", ["circle", "canary"])
async def test_a_link_to_nothing_in_the_container_is_not_found(
    artifacts: Artifacts, make: MakeTree, name: str
) -> None:
    container = make("links", "/nowhere")
    with pytest.raises(PathNotFoundError):
        await fetched(artifacts, container, f"/tree/{name}")


def paths_out(canary: str) -> list[str]:
    """Paths that could escape to a file of the host."""
    ways = ["", "/..", "/../../../../../../../..", "/tree/..", "/tree/../..", "/.", "/./.", "//"]
    ways += ["/%2e%2e", "/..%2f..", "/..;", "/.../...", "/tree/root", "/tree/root/..", "/make/.."]
    ways += ["/tree/above", "/tree/above/..", "/tree/process", "/proc/1/root", "/proc/self/root"]
    ways += ["/tree/process/proc/1/root", "/tree/circle", "/tree/root/tree/root", "/tree/file/.."]
    ways += ["/proc/self/cwd", "/dev/fd/..", "/merged", "/tree/\udcff/..", "/tree/file"]
    ends = ["", "/", "/.", "/..", "/../" + canary.rpartition("/")[2], "//", "\n", " "]
    found = [way + canary for way in ways]
    found += [canary + end for end in ends[1:]]
    found += [f"/tree/{link}{end}" for link in ("canary", "up") for end in ends[:5]]
    found += ["/tree", "/", "/tree/process/", "/tree/above/", "/proc", "/sys", "/dev", "/etc"]
    found += ["/etc/shadow", "/tree/circle/x", "/" + "x" * 256, "/tree" + "/x" * 2000]
    found += ["/tree/root/etc/shadow", "/var/lib/docker", "/run/docker.sock", "/\\..\\.."]
    return found


async def test_no_path_leads_to_a_file_of_the_host(
    artifacts: Artifacts, make: MakeTree, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    secret = uuid.uuid4().hex.encode()
    canary.write_bytes(secret)
    container = make("links", canary)
    shadow = await asyncio.to_thread(Path("/etc/shadow").read_bytes)
    paths = paths_out(str(canary))
    assert len(set(paths)) >= 60
    archives = 0
    for path in paths:
        try:
            answer = await fetched(artifacts, container, path)
            archives += 1
        except PathNotFoundError as error:
            answer = str(error).replace(checked_path(path), "").encode("utf-8", "replace")
        assert secret not in answer, path
        assert shadow not in answer, path
        assert HOST_FOLDERS not in answer, path
    assert archives >= 8


@pytest.mark.parametrize(
    "size",
    [
        2**31,
        2**63 - 1,
    ],
)
@pytest.mark.parametrize("path", ["/tree", "/tree/sparse"])
async def test_rejects_sparse_file_without_reading_it(
    engine: CountingEngine, artifacts: Artifacts, make: MakeTree, size: int, path: str
) -> None:
    container = make("sparse", size)
    with pytest.raises(ArtifactTooLargeError):
        await fetched(artifacts, container, path)
    assert engine.read_bytes <= 3 * BATCH_BYTES  # one batch is packed while the next is read
    await engine.remove(container.name)  # not locked any more


@pytest.mark.slow
@pytest.mark.thorough
async def test_limits_entries(artifacts: Artifacts, make: MakeTree) -> None:
    container = make("none")
    files = [Entry(b"%06d" % number) for number in range(99_999)]
    assert await asyncio.to_thread(container.put_archive, "/tree", tar_of(files))
    assert len(await fetched(artifacts, container, "/tree")) == 512 * (100_000 + 2)
    assert container.put_archive("/tree", tar_of([Entry(b"more")]))
    with pytest.raises(ArtifactTooLargeError) as error:
        await fetched(artifacts, container, "/tree")
    assert error.value.what == "entries"


async def test_stalled_reader_does_not_delay_removal(
    engine: CountingEngine, artifacts: Artifacts, make: MakeTree
) -> None:
    container = make("none")
    assert container.put_archive("/tree", tar_of([Entry(b"noise", content=NOISE)]))
    packed = bytearray()
    sent = asyncio.Event()
    goes_on = asyncio.Event()

    async def send(chunk: bytes) -> None:
        packed.extend(chunk)
        sent.set()
        await goes_on.wait()

    reading = asyncio.create_task(
        artifacts.fetch(container.name, "/tree/noise", send, account="acme")
    )
    await sent.wait()
    await engine.inspect(container.name)
    await engine.remove(container.name)
    goes_on.set()
    await reading
    [noise] = read(gzip.decompress(packed))
    assert noise.content == NOISE


@pytest.mark.part_alone
async def test_f10_an_archive_that_hangs_harms_only_its_container(
    engine: CountingEngine, records: Records, make: MakeTree, docker_engine: Path
) -> None:
    hung = make("none")
    sound = make("none")
    for container, content in ((hung, NOISE), (sound, b"quiet")):
        assert container.put_archive("/tree", tar_of([Entry(b"noise", content=content)]))
    artifacts = a_few(engine, records, pack=5.0)
    with socket.socket(socket.AF_UNIX) as unread:
        await asyncio.to_thread(unread.connect, str(docker_engine))
        ask = f"GET /v1.41/containers/{hung.name}/archive?path=/tree HTTP/1.1\r\nHost: x\r\n\r\n"
        await asyncio.to_thread(unread.sendall, ask.encode())
        await asyncio.to_thread(unread.recv, 1)  # from now on the engine holds its lock
        late = asyncio.create_task(fetched(artifacts, hung, "/tree"))
        await until(lambda: engine.archives == 1)
        artifacts.timeouts = FetchTimeouts()  # only what hangs has little time
        [quiet] = read(await fetched(artifacts, sound, "/tree/noise"))
        assert quiet.content == b"quiet"
        await engine.remove(sound.name)
        with pytest.raises(EngineTimeoutError):
            await late
    assert len(await fetched(a_few(engine, records), hung, "/tree")) > len(NOISE)


# Through the public API, with both programs as processes.


@pytest.fixture
def stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    spool = 101 * MEGABYTE
    with a_stack(docker_engine, demo_image, artifact_spool_bytes=spool) as made:
        yield made


@pytest.fixture
def ended(stack: Stack) -> tuple[str, Any]:
    """The id of an ended session, and its container."""
    session = stack.start()["id"]
    stack.end(session)
    [container] = stack.containers().values()
    return session, container


def test_error_answers(stack: Stack, ended: tuple[str, Any]) -> None:
    client = stack.client
    (session, container) = ended
    tree = [
        folder(b"tree"),
        Entry(b"tree/setuid", content=b"x", mode=0o4755),
        Entry(b"fifo", tarfile.FIFOTYPE),
        Entry(b"big", content=bytes(100 * MEGABYTE)),
    ]
    assert container.put_archive("/data", tar_of(tree))
    answer = client.get("/artifacts", session=session, path="/data/tree/").expect(200)
    assert answer.headers["content-type"] == "application/x-tar"
    assert "content-encoding" not in answer.headers
    [_, setuid] = read(gzip.decompress(answer.body))
    assert setuid.name == b"tree/setuid"
    assert setuid.mode == 0o755

    for path in ("/data/none", "/data/fifo", "/data/tree/setuid/x", "/" + "x" * 256):
        body = client.get("/artifacts", session=session, path=path).expect(404).json()
        assert body["code"] == "RESOURCE_NOT_FOUND"
    for path in ("/data/big", "/data", "/"):
        body = client.get("/artifacts", session=session, path=path).expect(413).json()
        assert body["code"] == "PAYLOAD_TOO_LARGE"
        assert "100000000 bytes" in body["details"]
    client.get("/artifacts", session=session, path="data").expect(422)


@pytest.mark.slow
def test_no_room_is_a_503_and_sigkill_leaves_no_spool(
    stack: Stack, ended: tuple[str, Any]
) -> None:
    agent = stack.agent
    client = stack.client
    (session, container) = ended
    assert container.put_archive("/data", tar_of([Entry(b"noise", content=NOISE)]))
    with client.stream("/artifacts", session=session, path="/data/noise", timeout=30):
        refused = client.get("/artifacts", session=session, path="/data/noise").expect(503)
        assert refused.headers["retry-after"] == "10"
        assert "fill artifact_spool_bytes" in refused.json()["details"]
        agent.kill()
        assert list((agent.state_dir / "spool").iterdir()) == []
    agent.start()
