"""Programs for Node, with packages from npm. tests/support/node locks them; make installs them."""

import asyncio
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.support.harness import ROOT
from tests.support.real_parts_policy import in_ci

FOLDER = ROOT / "build" / "node"
"""Node finds the packages from here."""

_PACKAGES = FOLDER / "node_modules"
_OPTIONS = ("--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022")
_FOR_NODE_ALONE = ("--lib", "es2022", "--types", "node")  # Without the types of browsers


def need_node() -> None:
    """Skip the test if Node or its packages are missing; fail in CI."""
    if shutil.which("node") is None or not _PACKAGES.is_dir():
        assert not in_ci(), f"node or {_PACKAGES} is missing"
        pytest.skip("make test installs node and its packages")


def node_command(program: str, *arguments: str) -> list[str]:
    """Return the command that runs the text of a module of JavaScript, in FOLDER."""
    return ["node", "--input-type=module", "--eval", program, *arguments]


async def run_node(program: str, given: str) -> str:
    """Run the text of a module of JavaScript with this input; return its output.

    Raises AssertionError: if it fails, with what it says.
    """
    process = await asyncio.create_subprocess_exec(
        *node_command(program), cwd=FOLDER, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    output, complaint = await process.communicate(given.encode())
    assert process.returncode == 0, complaint.decode()
    return output.decode()


async def compiled(program: Path, folder: Path) -> Path:
    """Check the types of a program in TypeScript; return it as JavaScript, in this folder.

    Raises AssertionError: if a type is wrong.
    """
    source = folder / f"{program.stem}.mts"  # A module, whatever it imports
    shutil.copy(program, source)
    process = await asyncio.create_subprocess_exec(
        _PACKAGES / ".bin" / "tsc", *_OPTIONS, *_FOR_NODE_ALONE, source, cwd=FOLDER, stdout=PIPE
    )
    complaint, _ = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    return source.with_suffix(".mjs")
