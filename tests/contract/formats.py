"""The released formats of the contract, in `formats/<n>`: descriptors, and calls as they went.

`agent.binpb` is the set of descriptors of agent.proto and what it imports. `exchanges.json` has
calls that a control plane and an agent of that format made, byte for byte: see `recording`.
A released format is never rewritten.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.support.harness import ROOT

FORMATS = Path(__file__).with_name("formats")
NUMBERS = sorted(path.name for path in FORMATS.iterdir())
PROTOS = ROOT / "protos"
DESCRIPTORS = "agent.binpb"
EXCHANGES = "exchanges.json"


def released(number: str) -> FileDescriptorSet:
    """The contract of a released format."""
    return FileDescriptorSet.FromString((FORMATS / number / DESCRIPTORS).read_bytes())


def today(option: str = "--include_imports") -> FileDescriptorSet:
    """The contract in agent.proto, compiled again by protoc with an option."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / DESCRIPTORS
        sources = [path.relative_to(PROTOS).as_posix() for path in sorted(PROTOS.rglob("*.proto"))]
        subprocess.run(
            [
                sys.executable,
                "-m",
                "grpc_tools.protoc",
                f"--proto_path={PROTOS}",
                option,
                f"--descriptor_set_out={output}",
                *sources,
            ],
            check=True,
            timeout=50,
        )
        return FileDescriptorSet.FromString(output.read_bytes())
