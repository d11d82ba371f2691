"""Commands that run to their end."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


async def finished(
    *command: str | Path, typed: str = "", env: Mapping[str, str] | None = None, **more: Any
) -> tuple[int | None, str, str]:
    """Run a process with more variables; return its exit code, standard output and error."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, "PYTHONPATH": ".", **(env or {})},
        **more,
    )
    try:
        output, errors = await process.communicate(typed.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode(errors="replace"), errors.decode(errors="replace")
