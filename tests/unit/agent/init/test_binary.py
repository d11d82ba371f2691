import hashlib
import platform
from pathlib import Path

import pytest

from agent.init.binary import PATH, NoInitError, init_program


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01".ljust(18, b"\0") + machine.to_bytes(2, "little") + b"code"


@pytest.mark.parametrize(
    ("machine", "number"),
    [
        ("x86_64", 62),
        ("aarch64", 183),
    ],
)
def test_reads_program_of_this_machine(tmp_path: Path, machine: str, number: int) -> None:
    path = tmp_path / "tiltyard-init"
    path.write_bytes(elf(number))
    program = init_program(path, machine)
    assert program.data == elf(number)
    assert program.sha256 == hashlib.sha256(elf(number)).hexdigest()


def test_missing_program_is_named_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(NoInitError, match=r"cannot read .*/none: No such file .*`make install`"):
        init_program(tmp_path / "none")


@pytest.mark.parametrize(
    ("data", "machine"),
    [
        (elf(183), "x86_64"),
        (elf(62), "aarch64"),
        (elf(62), "riscv64"),
        (b"#!/bin/sh\n", "x86_64"),
        (b"", "x86_64"),
        (elf(62)[:18], "x86_64"),
    ],
)
def test_refuses_program_of_other_machines(tmp_path: Path, data: bytes, machine: str) -> None:
    path = tmp_path / "tiltyard-init"
    path.write_bytes(data)
    with pytest.raises(NoInitError, match=f"it is not a program for {machine}. Install"):
        init_program(path, machine)


def test_program_was_built_for_this_machine() -> None:
    assert init_program().data == PATH.read_bytes()
    assert platform.machine() in {"x86_64", "aarch64"}
