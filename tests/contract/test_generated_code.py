"""The contract between control plane and agent: its generated code is that of its source, and the
source is written as buf STANDARD and our own rules ask.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from tests.support.harness import ROOT

PROTOS = ROOT / "protos"
SOURCES = sorted(PROTOS.rglob("*.proto"))


def generated(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for pattern in ("*_pb2*.py", "*_pb2*.pyi")
        for path in folder.rglob(pattern)
    }


def test_committed_code_is_what_the_source_generates(tmp_path: Path) -> None:
    subprocess.run([sys.executable, PROTOS / "generate.py", tmp_path], check=True, timeout=50)
    fresh, committed = generated(tmp_path / "tiltyard"), generated(ROOT / "tiltyard")
    assert sorted(fresh) == sorted(committed)
    stale = [name for name, content in fresh.items() if committed[name] != content]
    assert not stale, f"run `.venv/bin/python protos/generate.py`: {stale}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[descriptor_pb2.FileDescriptorProto]:
    """Our files with the comments, which the generated modules leave out."""
    output = tmp_path_factory.mktemp("descriptors") / "all.binpb"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={PROTOS}",
            "--include_source_info",
            f"--descriptor_set_out={output}",
            *(path.relative_to(PROTOS).as_posix() for path in SOURCES),
        ],
        check=True,
        timeout=50,
    )
    return list(descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file)


def uncommented(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    """Name every element of a file that no comment describes."""
    commented = {
        tuple(place.path)
        for place in file.source_code_info.location
        if place.leading_comments.strip() or place.trailing_comments.strip()
    }
    for path, name in elements(file):
        if path not in commented:
            yield name


def elements(file: descriptor_pb2.FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], str]]:
    """Every message, field, enum, value, service and method with its path in the descriptor."""
    for number, message in enumerate(file.message_type):
        yield from message_elements(message, (4, number), message.name)
    for number, enum in enumerate(file.enum_type):
        yield from enum_elements(enum, (5, number), enum.name)
    for number, service in enumerate(file.service):
        yield (6, number), service.name
        for index, method in enumerate(service.method):
            yield (6, number, 2, index), f"{service.name}.{method.name}"


def message_elements(
    message: descriptor_pb2.DescriptorProto, path: tuple[int, ...], name: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    if message.options.map_entry:
        return
    yield path, name
    for index, field in enumerate(message.field):
        yield (*path, 2, index), f"{name}.{field.name}"
    for index, oneof in enumerate(message.oneof_decl):
        if not is_synthetic(message, index):
            yield (*path, 8, index), f"{name}.{oneof.name}"
    for index, nested in enumerate(message.nested_type):
        yield from message_elements(nested, (*path, 3, index), f"{name}.{nested.name}")
    for index, enum in enumerate(message.enum_type):
        yield from enum_elements(enum, (*path, 4, index), f"{name}.{enum.name}")


def enum_elements(
    enum: descriptor_pb2.EnumDescriptorProto, path: tuple[int, ...], name: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    yield path, name
    for index, value in enumerate(enum.value):
        yield (*path, 2, index), f"{name}.{value.name}"


def is_synthetic(message: descriptor_pb2.DescriptorProto, oneof: int) -> bool:
    """Return whether protoc made this oneof for a proto3 `optional` field."""
    return any(f.proto3_optional and f.oneof_index == oneof for f in message.field)


def enums(
    container: descriptor_pb2.FileDescriptorProto | descriptor_pb2.DescriptorProto,
) -> Iterator[descriptor_pb2.EnumDescriptorProto]:
    yield from container.enum_type
    nested = (
        container.message_type
        if isinstance(container, descriptor_pb2.FileDescriptorProto)
        else container.nested_type
    )
    for message in nested:
        yield from enums(message)


def screaming(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def test_every_element_has_a_comment(files: list[descriptor_pb2.FileDescriptorProto]) -> None:
    assert [name for file in files for name in uncommented(file)] == []


def test_an_element_without_a_comment_would_be_found(
    files: list[descriptor_pb2.FileDescriptorProto],
) -> None:
    bare = descriptor_pb2.FileDescriptorProto()
    bare.CopyFrom(files[0])
    del bare.source_code_info.location[:]
    names = set(uncommented(bare))
    assert {
        "AgentService",
        "AgentService.StartSession",
        "State",
        "State.STATE_RUNNING",
        "Port",
        "Port.container_port",
    } <= names


def test_zero_values_say_that_nothing_was_set(
    files: list[descriptor_pb2.FileDescriptorProto],
) -> None:
    for file in files:
        for enum in enums(file):
            assert enum.value[0].number == 0
            assert enum.value[0].name == f"{screaming(enum.name)}_UNSPECIFIED"
            assert all(v.name.startswith(f"{screaming(enum.name)}_") for v in enum.value)


def test_every_method_has_a_request_and_a_response_of_its_own(
    files: list[descriptor_pb2.FileDescriptorProto],
) -> None:
    for file in files:
        for service in file.service:
            for method in service.method:
                prefix = f".{file.package}.{method.name}"
                assert method.input_type == f"{prefix}Request"
                assert method.output_type == f"{prefix}Response"


def test_packages_are_versioned_and_stand_in_their_folder(
    files: list[descriptor_pb2.FileDescriptorProto],
) -> None:
    for file in files:
        assert file.package == Path(file.name).parent.as_posix().replace("/", ".")
        assert re.search(r"\.v\d+$", file.package)
