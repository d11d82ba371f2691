"""The connections that an agent has to its engine: few, whatever it asks."""

from pathlib import Path

from agent.docker.calls import KEPT_THREADS
from tests.support.agent.scripted_engine import CREATED, ScriptedEngine, an_engine, says


async def test_calls_about_many_containers_share_a_few_connections(tmp_path: Path) -> None:
    script = ScriptedEngine(tmp_path)
    async with script.serving(), an_engine(script) as engine:
        await engine.info()
        begun = len(script.requests)
        for number in range(40):
            script.answer(f"GET /containers/c{number}/json", says(CREATED))
            await engine.inspect(f"c{number}")
        asked = script.requests[begun:]
        assert len(asked) == 40
        assert len({id(request.protocol) for request in asked}) <= KEPT_THREADS  # each has its own


async def test_a_connection_that_the_engine_closed_is_not_used_again(tmp_path: Path) -> None:
    script = ScriptedEngine(tmp_path)
    script.answer("GET /containers/x/json", says(CREATED))
    async with an_engine(script) as engine:
        for _ in range(3):
            async with script.serving():  # and is gone after it, with its connections
                assert (await engine.inspect("x")).container == "abc"
