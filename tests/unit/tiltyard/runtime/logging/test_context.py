import asyncio

from tiltyard.runtime.logging.events import bind, bound, task_context, unbind


async def test_task_context_has_only_its_own_and_kept_fields() -> None:
    async def known() -> tuple[str, str]:
        return bound("request"), bound("session")

    async def all_of_it() -> None:
        bind(request="r", session="other")
        of_the_request = asyncio.create_task(known(), name="a")
        own = asyncio.create_task(known(), name="b", context=task_context(session="s"))
        kept = asyncio.create_task(known(), name="c", context=task_context("request", session="s"))
        unbind("session")
        assert await of_the_request == ("r", "other")
        assert await own == ("", "s")
        assert await kept == ("r", "s")
        assert await known() == ("r", "")

    await asyncio.create_task(all_of_it(), name="request")
    assert await known() == ("", "")
