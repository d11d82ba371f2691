"""Regenerate the Python code of every .proto file: `python protos/generate.py [OUTPUT]`.

OUTPUT is the root of the generated tree; the default is the repository, which contains it.
`tests/contract/test_generated_code.py` fails if the two differ.
"""

import subprocess
import sys
import sysconfig
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def generate(output: Path) -> None:
    """Write the generated modules and stubs below `output`. Raises if protoc fails."""
    protos = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.proto"))
    plugins = Path(sysconfig.get_path("scripts"))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={ROOT}",
            f"--proto_path={resources.files('grpc_tools') / '_proto'}",
            f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
            f"--python_out={output}",
            f"--grpc_python_out={output}",
            f"--mypy_out={output}",
            f"--mypy_grpc_out={output}",
            *protos,
        ],
        check=True,
    )


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent)
