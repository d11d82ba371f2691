"""One thing against another, whichever comes first."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def comes_first(
    work: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object], name: str
) -> bool:
    """Wait for the first of both and cancel the other; True, or the error, when `work` has ended.

    The two are tasks of their own named after `name`. A cancel ends both.
    """
    first = asyncio.create_task(work, name=name)
    second = asyncio.create_task(other, name=f"{name}-limit")
    try:
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        if first.done():
            first.result()
        return first.done()
    finally:
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
