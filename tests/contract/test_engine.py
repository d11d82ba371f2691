"""What every `Engine` does: these tests run over the fake one and over Docker."""

import asyncio
import io
import tarfile
from itertools import pairwise

import pytest

from agent.domain import errors
from agent.domain.containers.engine import (
    LABEL_SESSION,
    LONGEST_PIECE_BYTES,
    Container,
    ContainerStatus,
    InitState,
    LogPiece,
    container_name,
)
from agent.domain.sessions.session import Process
from tests.contract.images import PAYLOAD, SAVE
from tests.contract.stages import (
    EXIT_CODE,
    MEBIBYTE,
    FakeStage,
    Stage,
    channel_of,
    created,
    ended,
    hand_over,
    log_of,
    port,
    running,
    spec,
    start,
    stopped,
    waiting,
)
from tests.docker.test_reports import OOM_TRIES
from tiltyard.contract import NetworkMode, Protocol, Resources

NOBODY = "tiltyard-nonesuch"
OTHER_AGENT = "somebody-else"


async def spoken(stage: Stage, container: Container) -> list[LogPiece]:
    """The log once the program has written PAYLOAD."""
    await stage.say(container)
    log: list[LogPiece] = []
    async with stage.engine.logs(container.container, follow=True) as answer:
        async for pieces in answer:
            log += pieces
            if log[-1].data == b"last\n":
                return log
    raise AssertionError(f"it ended with {log[-1]!r}")


def line_of(piece: LogPiece) -> tuple[int, bytes, bool]:
    """The stream and time of a piece's line, and whether it ends; the first of a tail has more."""
    return piece.stream, piece.time, piece.ends_line


class TestLife:
    async def test_info_describes_engine_and_machine(self, stage: Stage) -> None:
        info = await stage.engine.info()
        assert info.version
        assert info.runc
        assert info.kernel
        assert info.cpus > 0
        assert info.memory_bytes > 0

    async def test_a_created_container_has_never_run(self, stage: Stage) -> None:
        wanted = await spec(stage)
        container = await stage.engine.create(wanted)
        found = await stage.engine.inspect(container)
        assert found == Container(
            container=container,
            name=container_name(wanted.internal_id),
            status=ContainerStatus.CREATED,
            labels=wanted.labels,
            starts_as_root=found.starts_as_root,  # of the image alone
        )
        assert await stage.engine.inspect(found.name) == found
        assert await stage.engine.list(stage.agent_id) == [found]

    async def test_a_started_container_has_a_live_process(self, stage: Stage) -> None:
        container = await running(stage)
        assert container.status is ContainerStatus.RUNNING
        assert container.process is not None
        assert container.init is InitState.RUNNING
        assert container.end_time is None
        assert container.exit_code is None
        assert await stage.engine.list(stage.agent_id) == [container]
        # The second list may be answered from what the first has read.
        assert await stage.engine.list(stage.agent_id) == [container]

    async def test_any_reservation_of_memory_is_accepted(self, stage: Stage) -> None:
        """The engine itself refuses less than 6 MiB."""
        reserved = Resources(10**7, 1)
        container = await running(stage, reservation=reserved)
        assert container.status is ContainerStatus.RUNNING

    async def test_starting_what_runs_does_nothing(self, stage: Stage) -> None:
        container = await running(stage)
        assert await start(stage, container) == container
        assert await stage.engine.inspect(container.container) == container

    async def test_an_end_leaves_its_exit_code(self, stage: Stage) -> None:
        container = await running(stage)
        found = await stopped(stage, container)
        assert found.status is ContainerStatus.ENDED
        assert found.process is None
        assert found.exit_code == EXIT_CODE
        assert not found.oom_killed
        assert found.init is InitState.UNKNOWN
        assert found.end_time is not None
        assert await stage.engine.list(stage.agent_id) == [found]

    async def test_an_ended_container_can_be_started_again(self, stage: Stage) -> None:
        first = await running(stage)
        over = await stopped(stage, first)
        assert await stage.engine.list(stage.agent_id) == [over]
        second = await start(stage, first)
        assert await stage.engine.inspect(first.container) == second
        assert second.status is ContainerStatus.RUNNING
        assert second.process is not None
        assert second.process != first.process
        assert await stage.engine.list(stage.agent_id) == [second]

    async def test_reports_at_least_one_of_several_oom_kills(self, stage: Stage) -> None:
        """Docker may learn of an end before it learns of the OOM kill, and then never reports it.

        So the engine's answer is a hint; the agent reads the kernel's own count beside it.
        """
        reports: list[bool] = []
        while not any(reports) and len(reports) < OOM_TRIES:
            container = await running(stage)
            await stage.eat(container)
            found = await ended(stage, container)
            assert found.exit_code == 137
            reports.append(found.oom_killed)
        assert any(reports)

    async def test_what_a_container_wrote_is_measured(self, stage: Stage) -> None:
        container = await running(stage)
        neighbour = await running(stage)
        before = await stage.engine.written_bytes(container.container)
        await stage.write_file(container, 3 * MEBIBYTE)
        wrote = await stage.engine.written_bytes(container.container) - before
        assert 3 * MEBIBYTE <= wrote < 4 * MEBIBYTE
        assert await stage.engine.written_bytes(neighbour.container) == before

    async def test_the_host_network_does_without_ports(self, stage: Stage) -> None:
        ports = (port(Protocol.UDP, 7777),)
        container = await running(stage, network_mode=NetworkMode.HOST, ports=ports)
        assert container.process is not None

    async def test_a_list_holds_the_containers_of_one_agent(self, stage: Stage) -> None:
        mine = await stage.engine.create(await spec(stage))
        await stage.engine.create(await spec(stage))
        assert len(await stage.engine.list(stage.agent_id)) == 2
        assert mine in {found.container for found in await stage.engine.list(stage.agent_id)}
        assert await stage.engine.list(OTHER_AGENT) == []


class TestEnd:
    async def test_sigterm_ends_a_program_that_has_no_handler(self, stage: Stage) -> None:
        container = await running(stage)
        await stage.engine.kill(container.name, "SIGTERM")
        assert (await ended(stage, container)).exit_code == 143

    async def test_sigkill_ends_a_program_that_ignores_sigterm(self, stage: Stage) -> None:
        container = await running(stage, "ignore-sigterm")
        await stage.engine.kill(container.container, "SIGTERM")
        assert (await stage.engine.inspect(container.container)).process == container.process
        await stage.engine.kill(container.container, "SIGKILL")
        assert (await ended(stage, container)).exit_code == 137

    async def test_a_signal_to_what_does_not_run_does_nothing(self, stage: Stage) -> None:
        created = await stage.engine.create(await spec(stage))
        await stage.engine.kill(created, "SIGTERM")
        over = await stopped(stage, await running(stage))
        await stage.engine.kill(over.container, "SIGKILL")

    async def test_removal_takes_a_running_container(self, stage: Stage) -> None:
        container = await running(stage)
        assert container.process is not None
        await stage.engine.remove(container.name)
        await stage.engine.wait_end(container.process)
        with pytest.raises(errors.ContainerGoneError):
            await stage.engine.inspect(container.container)
        assert await stage.engine.list(stage.agent_id) == []

    async def test_removal_of_what_is_gone_does_nothing(self, stage: Stage) -> None:
        container = await stage.engine.create(await spec(stage))
        await stage.engine.remove(container)
        await stage.engine.remove(container)
        await stage.engine.remove(NOBODY)

    async def test_removals_at_the_same_time_all_succeed(self, stage: Stage) -> None:
        container = await running(stage)
        names = [container.name, container.container, container.container[:12]]
        if isinstance(stage, FakeStage):
            names.pop()
        await asyncio.gather(*map(stage.engine.remove, names))
        assert await stage.engine.list(stage.agent_id) == []

    async def test_a_process_is_signalled_past_the_engine(self, stage: Stage) -> None:
        container = await running(stage)
        assert container.process is not None
        await stage.engine.signal_process(Process(2**22 - 1, start_ticks=1), "SIGKILL")
        another = Process(container.process.pid, container.process.start_ticks + 1)
        await stage.engine.signal_process(another, "SIGKILL")
        assert (await stage.engine.inspect(container.container)).process == container.process
        await stage.engine.signal_process(container.process, "SIGKILL")
        assert (await ended(stage, container)).exit_code == 137
        await stage.engine.signal_process(container.process, "SIGKILL")

    async def test_the_processes_of_a_program_are_seen_past_the_engine(self, stage: Stage) -> None:
        container = await waiting(stage)
        assert container.process is not None
        [init] = await stage.engine.processes(container.process)
        assert init.process == container.process
        await hand_over(stage, container)
        [program] = await stage.engine.processes(container.process)
        assert program.process != container.process
        assert program.parent == container.process.pid
        await stage.engine.signal_process(program.process, "SIGTERM")
        await stage.engine.wait_end(container.process)
        assert await stage.engine.processes(container.process) == []
        assert (await ended(stage, container)).exit_code == 143

    async def test_program_in_the_place_of_its_init_is_seen(self, stage: Stage) -> None:
        container = await waiting(stage)
        assert container.process is not None
        await hand_over(stage, container, in_place=True)
        [program] = await stage.engine.processes(container.process)
        assert program.process == container.process

    async def test_the_end_of_a_process_that_is_gone_has_come(self, stage: Stage) -> None:
        await stage.engine.wait_end(Process(pid=2**22 - 1, start_ticks=1))
        await stage.engine.wait_end(Process(pid=1, start_ticks=10**15))

    @pytest.mark.parametrize("mode", NetworkMode)
    async def test_only_a_live_program_that_did_so_has_bound_its_ports(
        self, stage: Stage, mode: NetworkMode
    ) -> None:
        container = await running(stage, network_mode=mode)
        ports = [port(Protocol.UDP, 29_999), port(Protocol.TCP, 29_999)]
        for process in (container.process, Process(2**22 - 1, start_ticks=1)):
            assert process is not None
            assert not await stage.engine.has_bound(process, mode, ports)

    async def test_load_is_known_of_the_engine_and_of_containers_that_run(
        self, stage: Stage
    ) -> None:
        container = await running(stage)
        assert container.process is not None
        gone = Process(2**22 - 1, start_ticks=1)
        before = await stage.engine.read_load(())
        found = await stage.engine.read_load([container.process, gone])
        assert before.relays == {}
        assert before.total is not None
        assert found.total is not None
        assert before.total <= found.total
        assert list(found.relays) == [container.process]


class TestRefusals:
    async def test_create_needs_the_image(self, stage: Stage) -> None:
        with pytest.raises(errors.ImageMissingError) as error:
            await stage.engine.create(await spec(stage, image=stage.images.unknown))
        assert error.value.image == stage.images.unknown

    async def test_a_name_is_given_once(self, stage: Stage) -> None:
        wanted = await spec(stage)
        await stage.engine.create(wanted)
        with pytest.raises(errors.ContainerExistsError) as error:
            await stage.engine.create(wanted)
        assert error.value.name == container_name(wanted.internal_id)

    async def test_an_image_whose_user_is_unknown_cannot_run(self, stage: Stage) -> None:
        container = await created(stage, image=stage.images.no_user)
        with pytest.raises(errors.ImageCannotRunError):
            await start(stage, container)
        found = await stage.engine.inspect(container.container)
        assert found.status is ContainerStatus.CREATED

    @pytest.mark.parametrize("protocol", list(Protocol))
    async def test_a_port_of_somebody_else_leaves_a_created_container(
        self, stage: Stage, protocol: Protocol
    ) -> None:
        with stage.occupied(protocol) as taken:
            container = await created(stage, ports=(port(protocol, taken),))
            with pytest.raises(errors.PortTakenError) as error:
                await start(stage, container)
            assert error.value.port == taken
            found = await stage.engine.inspect(container.container)
            assert found.status is ContainerStatus.CREATED
            assert found.exit_code is None
            [listed] = await stage.engine.list(stage.agent_id)
            assert listed.status is ContainerStatus.CREATED
        assert (await start(stage, container)).init is InitState.WAITING

    async def test_a_port_of_another_container_is_taken(self, stage: Stage) -> None:
        with stage.occupied(Protocol.UDP) as free_soon:
            pass
        ports = (port(Protocol.UDP, free_soon),)
        first = await running(stage, ports=ports)
        second = await created(stage, ports=ports)
        with pytest.raises(errors.PortTakenError) as error:
            await start(stage, second)
        assert error.value.port == free_soon
        await stage.engine.remove(first.container)
        await start(stage, second)

    async def test_a_container_that_is_not_there_is_gone(self, stage: Stage) -> None:
        for call in (
            stage.engine.start(NOBODY, channel_of(stage, await created(stage))),
            stage.engine.inspect(NOBODY),
            stage.engine.written_bytes(NOBODY),
            stage.engine.kill(NOBODY, "SIGTERM"),
        ):
            with pytest.raises(errors.ContainerGoneError) as error:
                await call
            assert error.value.container == NOBODY
        with pytest.raises(errors.ContainerGoneError):
            async with stage.engine.logs(NOBODY):
                pass
        with pytest.raises(errors.ContainerGoneError):
            async with stage.engine.archive(NOBODY, "/data"):
                pass


class TestLogs:
    async def test_every_byte_is_kept(self, stage: Stage) -> None:
        container = await running(stage)
        written = b"ready\n" + PAYLOAD
        assert b"".join(piece.data for piece in await spoken(stage, container)) == written
        await stopped(stage, container)
        assert await log_of(stage, container) == written

    async def test_a_follower_stays_until_the_run_ends(self, stage: Stage) -> None:
        container = await running(stage)
        async with stage.engine.logs(container.container, follow=True) as answer:
            [ready] = await anext(answer)
            assert ready.data == b"ready\n"
            await stage.end(container)
            assert [pieces async for pieces in answer] == []
        await ended(stage, container)

    async def test_a_follower_of_a_silent_program_is_let_in(self, stage: Stage) -> None:
        container = await waiting(stage)
        await hand_over(stage, container, "silent")
        async with stage.engine.logs(container.container, follow=True) as answer:
            await stage.engine.remove(container.container)
            assert [pieces async for pieces in answer] == []

    async def test_following_what_does_not_run_ends_at_once(self, stage: Stage) -> None:
        created = await stage.engine.inspect(await stage.engine.create(await spec(stage)))
        assert await log_of(stage, created, follow=True) == b""
        container = await stopped(stage, await running(stage))
        assert await log_of(stage, container, follow=True) == b"ready\n"

    async def test_a_log_goes_on_over_runs(self, stage: Stage) -> None:
        container = await stopped(stage, await running(stage))
        await hand_over(stage, await start(stage, container))
        await stage.ready(await stage.engine.inspect(container.container), runs=2)
        assert await log_of(stage, container) == b"ready\n" * 2

    async def test_pieces_tell_where_lines_begin_and_end(self, stage: Stage) -> None:
        log = await spoken(stage, await running(stage))
        assert {piece.stream for piece in log} == {1}
        assert all(len(piece.data) <= LONGEST_PIECE_BYTES + 1 for piece in log)
        for before, piece in pairwise(log):
            assert piece.begins_line == before.ends_line
            assert (piece.time == before.time) == (not before.ends_line)
        assert all(piece.data.endswith(b"\n") == piece.ends_line for piece in log)
        assert sum(not piece.ends_line for piece in log) > 2**20 // LONGEST_PIECE_BYTES - 1

    async def test_the_end_of_a_log_is_as_in_all_of_it(self, stage: Stage) -> None:
        container = await running(stage)
        log = await spoken(stage, container)
        for tail in (1, 2, len(log), len(log) + 1):
            async with stage.engine.logs(container.container, tail=tail) as answer:
                end = [piece async for pieces in answer for piece in pieces]
            assert list(map(line_of, end)) == list(map(line_of, log[-tail:]))

    async def test_a_reader_may_leave(self, stage: Stage) -> None:
        container = await running(stage)
        async with stage.engine.logs(container.container, follow=True) as answer:
            await anext(answer)
        async with stage.engine.logs(container.container, follow=True):
            pass
        await stage.engine.remove(container.container)


class TestArchives:
    async def members(self, stage: Stage, container: str, path: str) -> dict[str, bytes]:
        async with stage.engine.archive(container, path) as chunks:
            data = b"".join([chunk async for chunk in chunks])
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            return {
                member.name: (tar.extractfile(member) or io.BytesIO()).read()
                for member in tar
                if member.isfile()
            }

    async def test_a_file_and_a_folder(self, stage: Stage) -> None:
        container = await stopped(stage, await running(stage))
        assert await self.members(stage, container.name, "/data/save.json") == {"save.json": SAVE}
        assert await self.members(stage, container.name, "/data") == {"data/save.json": SAVE}

    @pytest.mark.parametrize(
        "path", ["/none", "/data/none", "/data/save.json/none", "/a b+c%2f&x=1", "/\u00fc"]
    )
    async def test_a_path_that_is_not_there(self, stage: Stage, path: str) -> None:
        container = await running(stage)
        with pytest.raises(errors.PathNotFoundError) as error:
            await self.members(stage, container.container, path)
        assert error.value.path == path


class TestEvents:
    async def test_changes_of_this_agents_containers_are_reported(self, stage: Stage) -> None:
        async with stage.engine.events(stage.agent_id) as sessions:
            await stage.engine.create(await spec(stage, agent_id=f"{stage.agent_id}-other"))
            container = await created(stage)
            internal_id = container.labels[LABEL_SESSION]
            assert await anext(sessions) == internal_id
            await start(stage, container)
            assert await anext(sessions) == internal_id
            await stage.engine.remove(container.container)
            later = await spec(stage)
            await stage.engine.create(later)
            assert await anext(sessions) == later.internal_id
        for other in await stage.engine.list(f"{stage.agent_id}-other"):
            await stage.engine.remove(other.container)
