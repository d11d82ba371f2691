"""What every `Engine` does with a container's init: over the fake engine and over Docker."""

import asyncio

import pytest

from agent.domain import errors
from agent.domain.containers.engine import Container, ContainerStatus, InitState, ReportedEnd
from tests.contract.images import REFUSED
from tests.contract.stages import (
    EXIT_CODE,
    Stage,
    channel_of,
    created,
    ended,
    hand_over,
    log_of,
    running,
    start,
    stopped,
    waiting,
)

VARIABLES = {"NAME": "a=b\nc", "EMPTY": "", "\u00dc": "\u00fc"}


async def seen_in_list(stage: Stage) -> Container:
    """The only container of the stage, as it is listed."""
    [found] = await stage.engine.list(stage.agent_id)
    return found


async def report_of_end(stage: Stage, container: Container) -> "asyncio.Task[ReportedEnd | None]":
    """Begin to wait for what its init will report."""
    assert container.process is not None
    channel = channel_of(stage, container)
    task = asyncio.create_task(stage.engine.wait_end(container.process, channel))
    await asyncio.sleep(0)
    return task


class TestPrograms:
    async def test_arguments_take_the_place_of_the_command(self, stage: Stage) -> None:
        image = stage.images.command
        assert await stage.engine.program(image, ()) == ("/program", "silent")
        assert await stage.engine.program(image, ["a", ""]) == ("/program", "a", "")

    async def test_an_image_without_a_program_needs_arguments(self, stage: Stage) -> None:
        image = stage.images.bare
        with pytest.raises(errors.ImageCannotRunError, match="it names no command"):
            await stage.engine.program(image, ())
        assert await stage.engine.program(image, ["/program"]) == ("/program",)

    async def test_an_image_that_is_not_there_has_none(self, stage: Stage) -> None:
        with pytest.raises(errors.ImageMissingError) as error:
            await stage.engine.program(stage.images.unknown, ())
        assert error.value.image == stage.images.unknown


class TestWaiting:
    async def test_a_started_container_waits(self, stage: Stage) -> None:
        container = await waiting(stage)
        assert container.status is ContainerStatus.RUNNING
        assert container.process is not None
        assert container.init is InitState.WAITING
        assert container.waits
        assert await stage.engine.inspect(container.container) == container
        assert await seen_in_list(stage) == container

    async def test_starting_what_waits_does_nothing(self, stage: Stage) -> None:
        container = await waiting(stage)
        assert await start(stage, container) == container

    @pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
    async def test_it_ends_when_it_is_told(self, stage: Stage, signal: str) -> None:
        container = await waiting(stage)
        end = await report_of_end(stage, container)
        await stage.engine.kill(container.container, signal)
        assert await end is None
        found = await ended(stage, container)
        assert found.exit_code == {"SIGTERM": 143, "SIGKILL": 137}[signal]
        assert await log_of(stage, found) == b""

    async def test_removal_ends_it(self, stage: Stage) -> None:
        container = await waiting(stage)
        end = await report_of_end(stage, container)
        await stage.engine.remove(container.container)
        assert await end is None

    async def test_an_ended_container_waits_again(self, stage: Stage) -> None:
        over = await stopped(stage, await running(stage))
        assert not over.waits
        again = await start(stage, over)
        assert again.init is InitState.WAITING
        await hand_over(stage, again, "silent")
        assert (await seen_in_list(stage)).init is InitState.RUNNING

    async def test_a_container_that_others_restart_waits_again(self, stage: Stage) -> None:
        first = await running(stage)
        assert await seen_in_list(stage) == first
        await stage.restart(first)
        again = await start(stage, first)  # returns once it waits
        assert again.init is InitState.WAITING
        assert again.process != first.process
        assert await seen_in_list(stage) == again
        await hand_over(stage, again, "silent")
        assert (await seen_in_list(stage)).init is InitState.RUNNING


class TestHandOver:
    async def test_program_and_variables_arrive(self, stage: Stage) -> None:
        container = await waiting(stage)
        await hand_over(stage, container, "silent", "", "$NAME \u00fc\n", env=VARIABLES)
        arguments, variables = await stage.executed(container)
        assert arguments == ["/program", "silent", "", "$NAME \u00fc\n"]
        assert variables.items() >= VARIABLES.items()

    async def test_it_shows_in_what_is_inspected_and_listed(self, stage: Stage) -> None:
        container = await waiting(stage)
        assert await seen_in_list(stage) == container
        await hand_over(stage, container)
        found = await stage.engine.inspect(container.container)
        assert found.init is InitState.RUNNING
        assert found.process == container.process
        assert not found.waits
        assert await seen_in_list(stage) == found

    async def test_it_happens_once(self, stage: Stage) -> None:
        container = await waiting(stage)
        await hand_over(stage, container)
        await stage.ready(container)
        with pytest.raises(errors.HandOverFailedError):
            await hand_over(stage, container)
        found = await stopped(stage, container)
        assert await log_of(stage, found) == b"ready\n"

    async def test_it_needs_the_process_that_was_started(self, stage: Stage) -> None:
        first = await waiting(stage)
        await stage.engine.kill(first.container, "SIGKILL")
        await ended(stage, first)
        with pytest.raises(errors.HandOverFailedError):
            await hand_over(stage, first)
        again = await start(stage, first)
        with pytest.raises(errors.HandOverFailedError):
            await hand_over(stage, first)
        assert (await stage.engine.inspect(again.container)).init is InitState.WAITING

    async def test_it_needs_a_container_that_runs(self, stage: Stage) -> None:
        container = await created(stage)
        with pytest.raises(errors.HandOverFailedError):
            await hand_over(stage, container)
        found = await stage.engine.inspect(container.container)
        assert found.status is ContainerStatus.CREATED

    async def test_in_place_the_program_is_the_first_process(self, stage: Stage) -> None:
        container = await waiting(stage)
        await hand_over(stage, container, in_place=True)
        found = await stage.engine.inspect(container.container)
        assert found.process == container.process
        assert found.init is InitState.UNKNOWN
        await stage.ready(found)
        with pytest.raises(errors.HandOverFailedError):
            await hand_over(stage, found)
        end = await report_of_end(stage, found)
        assert (await stopped(stage, found)).exit_code == EXIT_CODE
        assert await end is None

    @pytest.mark.parametrize("in_place", [False, True])
    @pytest.mark.parametrize("program", REFUSED)
    async def test_what_cannot_be_executed_is_refused(
        self, stage: Stage, program: str, *, in_place: bool
    ) -> None:
        container = await waiting(stage, image=stage.images.bare)
        cause, exit_code = REFUSED[program]
        with pytest.raises(errors.ImageCannotRunError) as error:
            await hand_over(stage, container, program=program, in_place=in_place)
        assert error.value.cause == f"{program}: {cause}"
        assert (await ended(stage, container)).exit_code == exit_code


class TestReportedEnds:
    async def test_an_exit_code_is_reported(self, stage: Stage) -> None:
        container = await running(stage)
        end = await report_of_end(stage, container)
        found = await stopped(stage, container)
        reported = await end
        assert reported is not None
        assert reported.exit_code == EXIT_CODE
        assert found.end_time is not None
        assert reported.time <= found.end_time

    async def test_a_signal_is_reported(self, stage: Stage) -> None:
        container = await running(stage)
        end = await report_of_end(stage, container)
        await stage.engine.kill(container.container, "SIGTERM")
        reported = await end
        assert reported is not None
        assert reported.exit_code == 143

    async def test_a_killed_init_reports_nothing(self, stage: Stage) -> None:
        container = await running(stage)
        end = await report_of_end(stage, container)
        await stage.engine.kill(container.container, "SIGKILL")
        assert await end is None

    async def test_an_end_that_nobody_has_followed_is_reported_once(self, stage: Stage) -> None:
        container = await running(stage)
        await stopped(stage, container)
        reported = await (await report_of_end(stage, container))
        assert reported is not None
        assert reported.exit_code == EXIT_CODE
        assert await (await report_of_end(stage, container)) is None

    async def test_only_a_channel_has_reports(self, stage: Stage) -> None:
        container = await running(stage)
        assert container.process is not None
        end = asyncio.create_task(stage.engine.wait_end(container.process))
        await stopped(stage, container)
        assert await end is None
