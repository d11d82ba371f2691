import hashlib
import os
import stat
from pathlib import Path

import pytest

from agent.init.binary import InitProgram
from agent.state.init_programs import install, installed, remove_unused


def program(data: bytes) -> InitProgram:
    return InitProgram(data, hashlib.sha256(data).hexdigest())


def test_file_is_named_by_its_content_and_executable_whatever_the_umask(tmp_path: Path) -> None:
    former = os.umask(0o077)
    try:
        path = install(tmp_path, program(b"one"))
    finally:
        os.umask(former)
    assert path == tmp_path / "init" / hashlib.sha256(b"one").hexdigest()
    assert path == installed(tmp_path, program(b"one").sha256)
    assert path.read_bytes() == b"one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = install(tmp_path, program(b"one"))
    before = path.stat()
    install(tmp_path, program(b"two"))
    assert install(tmp_path, program(b"one")) == path
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("damage", ["content", "mode"])
def test_damaged_file_is_replaced_and_not_written_to(tmp_path: Path, damage: str) -> None:
    path = install(tmp_path, program(b"one"))
    if damage == "content":
        path.write_bytes(b"on")
    else:
        path.chmod(0o600)
    with path.open("rb") as mounted:
        assert install(tmp_path, program(b"one")) == path
        assert path.read_bytes() == b"one"
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
        assert os.fstat(mounted.fileno()).st_ino != path.stat().st_ino


def test_removes_all_but_used_programs_and_what_was_left_half(tmp_path: Path) -> None:
    used = install(tmp_path, program(b"used"))
    unused = install(tmp_path, program(b"unused"))
    half = used.with_name(f".{unused.name}.new")
    half.write_bytes(b"unu")
    assert remove_unused(tmp_path, {used.name}) == sorted([half.name, unused.name])
    assert list(used.parent.iterdir()) == [used]
    assert remove_unused(tmp_path, {used.name}) == []


def test_without_a_folder_there_is_nothing_to_remove(tmp_path: Path) -> None:
    assert remove_unused(tmp_path, set()) == []


def test_program_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "init").write_bytes(b"")
    with pytest.raises(OSError, match="Not a directory"):
        install(tmp_path, program(b"one"))
