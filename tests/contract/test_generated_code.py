"""The contract between control plane and agent: its generated code is that of its source, and the
source is written as buf STANDARD and our own rules ask.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import EnumDescriptorProto, FileDescriptorProto

from tests.contract.formats import PROTOS, today
from tests.support.harness import ROOT


def generated(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for pattern in ("*_pb2*.py", "*_pb2*.pyi")
        for path in folder.rglob(pattern)
    }


def test_committed_code_is_what_the_source_generates(tmp_path: Path) -> None:
    subprocess.run([sys.executable, PROTOS / "generate.py", tmp_path], check=True, timeout=50)
    fresh = generated(tmp_path / "tiltyard")
    committed = generated(ROOT / "tiltyard")
    assert sorted(fresh) == sorted(committed)
    stale = [name for name, content in fresh.items() if committed[name] != content]
    assert not stale, f"run `.venv/bin/python protos/generate.py`: {stale}"


@pytest.fixture
def files() -> list[FileDescriptorProto]:
    """Our files with the comments, which the generated modules leave out."""
    return list(today("--include_source_info").file)


ELEMENTS: dict[str, dict[int, str]] = {
    "file": {4: "message", 5: "enum", 6: "service"},
    "message": {2: "field", 3: "message", 4: "enum", 8: "oneof"},
    "enum": {2: "value"},
    "service": {2: "method"},
}
"""What is in what, by the numbers of the fields of the descriptors."""


def is_element(path: Sequence[int]) -> bool:
    """Return whether a path in the descriptor of a file leads to what should have a comment."""
    kind: str | None = "file"
    for number in path[::2]:
        kind = ELEMENTS.get(kind or "", {}).get(number)
    return kind is not None and len(path) > 0 and len(path) % 2 == 0


def uncommented(file: FileDescriptorProto) -> list[int]:
    """The lines of all elements of a file that no comment describes."""
    return [
        place.span[0] + 1
        for place in file.source_code_info.location
        if is_element(place.path)
        and not (place.leading_comments.strip() or place.trailing_comments.strip())
    ]


def enums(kind: Any) -> Iterator[EnumDescriptorProto]:
    """Return the enums of a file or a message, and of the messages in it."""
    yield from kind.enum_type
    is_file = isinstance(kind, FileDescriptorProto)
    for message in kind.message_type if is_file else kind.nested_type:
        yield from enums(message)


def screaming(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def test_every_element_has_a_comment(files: list[FileDescriptorProto]) -> None:
    for file in files:
        assert uncommented(file) == [], file.name


def test_an_element_without_a_comment_is_found(files: list[FileDescriptorProto]) -> None:
    for file in files:
        elements = [place for place in file.source_code_info.location if is_element(place.path)]
        assert len(elements) > 300, "they are not found"
        bare = elements[0]
        bare.ClearField("leading_comments")
        bare.ClearField("trailing_comments")
        assert uncommented(file) == [bare.span[0] + 1]


def test_packages_are_versioned_and_in_their_folder(files: list[FileDescriptorProto]) -> None:
    for file in files:
        assert file.package == Path(file.name).parent.as_posix().replace("/", ".")
        assert re.search(r"\.v\d+$", file.package)


def test_zero_values_of_enums_say_that_nothing_was_set(files: list[FileDescriptorProto]) -> None:
    for file in files:
        for enum in enums(file):
            assert enum.value[0].number == 0
            assert enum.value[0].name == f"{screaming(enum.name)}_UNSPECIFIED"
            for value in enum.value:
                assert value.name.startswith(f"{screaming(enum.name)}_")


def test_every_method_has_its_own_request_and_response(files: list[FileDescriptorProto]) -> None:
    for file in files:
        for service in file.service:
            for method in service.method:
                prefix = f".{file.package}.{method.name}"
                assert method.input_type == f"{prefix}Request"
                assert method.output_type == f"{prefix}Response"
