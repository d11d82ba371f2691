"""How programs are found and executed, compared with `docker-init`, the former first process."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent.init.binary import PATH
from agent.init.messages import Cause, Executed, Refused
from tests.support.agent.init_process import InitProcess, docker_init

ENOENT = 2
E2BIG = 7
ENOEXEC = 8
EACCES = 13
ENOTDIR = 20
ENAMETOOLONG = 36
FIRST = "first:second:/usr/bin:/bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with programs of all kinds."""
    for name in ("first", "second", "folder"):
        (tmp_path / name).mkdir()
    program = Path(shutil.which("true") or "").read_bytes()
    loader = program.index(b"/lib")
    files = {
        "own-script": b'#!/bin/sh\necho script "$@"\n',
        "plain": b'echo plain "$@"\n',
        "empty": b"",
        "lost": b"#!/nowhere/interpreter\n",
        "lost-elf": program[:loader] + b"/lob" + program[loader + 4 :],
        "foreign": program[:18] + b"\xff\xff" + program[20:],
        "first/twice": b"#!/bin/sh\necho first\n",
        "second/twice": b"#!/bin/sh\necho second\n",
        "first/blocked": b"#!/bin/sh\necho first\n",
        "second/blocked": b"#!/bin/sh\necho second\n",
        "first/halves": b"#!/nowhere/interpreter\n",
        "second/halves": b"#!/bin/sh\necho second\n",
        "first/plain-in-path": b'echo plain "$@"\n',
        "first/data": b"",
        "first/lost-in-path": b"#!/nowhere/interpreter\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "first/blocked").chmod(0o644)
    (tmp_path / "first/data").chmod(0o644)
    (tmp_path / "dangling").symlink_to("nowhere")
    return tmp_path


def by_init(
    folder: Path, program: Sequence[str], env: Mapping[str, str]
) -> tuple[int, str, Refused | None]:
    with InitProcess(folder / "channel", env={}, cwd=folder, stdin=subprocess.DEVNULL) as init:
        init.hand_over(*program, env=env)
        report = init.next_report()
        assert isinstance(report, Executed | Refused)
        output = init.output()
        return init.exit_code(), output, report if isinstance(report, Refused) else None


def by_docker_init(
    folder: Path, program: Sequence[str], env: Mapping[str, str]
) -> tuple[int, str]:
    with docker_init(program, env=env, cwd=folder, stdin=subprocess.DEVNULL) as process:
        output = process.output()
        return process.exit_code(), output


EXECUTED = [
    (["/bin/echo", "a b", "", "*"], {}),
    (["echo", "found"], {}),
    (["echo", "found"], {"PATH": "/nowhere:/bin"}),
    (["echo", "found"], {"PATH": "/dev/null:/bin"}),
    (["./own-script", "a b", "c"], {}),
    (["./plain", "a b", "c"], {}),
    (["./plain"], {}),
    (["./empty"], {}),
    (["own-script"], {"PATH": ""}),
    (["own-script"], {"PATH": ":/bin"}),
    (["own-script"], {"PATH": "/bin:"}),
    (["own-script"], {"PATH": "/bin::/usr/bin"}),
    (["plain", "a"], {"PATH": "/bin::/usr/bin"}),
    (["twice"], {"PATH": FIRST}),
    (["blocked"], {"PATH": FIRST}),
    (["halves"], {"PATH": FIRST}),
    (["plain-in-path", "a b", "c"], {"PATH": FIRST}),
    (["sh", "-c", 'echo "$0" "$@"', "a", "b"], {}),
    (["sh", "-c", "exit 200"], {}),
    (["sh", "-c", "kill -KILL $$"], {}),
    (["sh", "-c", "ulimit -c 0; kill -SEGV $$"], {}),
    (["env"], {"PATH": "/usr/bin", "A": "1", "B": "", "C": "=", "D E": "x\ny"}),
    (["env"], {"PATH": "/usr/bin", **{f"N{i}": "x" * 900 for i in range(1000)}}),
]


@pytest.mark.parametrize(("program", "env"), EXECUTED)
def test_executes_as_docker_init_does(
    folder: Path, program: list[str], env: dict[str, str]
) -> None:
    code, output, refused = by_init(folder, program, env)
    assert refused is None
    expected_code, expected = by_docker_init(folder, program, env)
    assert code == expected_code
    assert sorted(output.splitlines()) == sorted(expected.splitlines())
    assert output or "echo" not in program[0]


REFUSED = [
    (["nothing"], {}, Refused(ENOENT, Cause.MISSING), 127),
    ([""], {}, Refused(ENOENT, Cause.MISSING), 127),
    (["/nowhere/game"], {}, Refused(ENOENT, Cause.MISSING), 127),
    (["./dangling"], {}, Refused(ENOENT, Cause.MISSING), 127),
    (["nothing"], {"PATH": ""}, Refused(ENOENT, Cause.MISSING), 127),
    (["own-script"], {"PATH": "/bin"}, Refused(ENOENT, Cause.MISSING), 127),
    (["./lost"], {}, Refused(ENOENT, Cause.INTERPRETER), 127),
    (["./lost-elf"], {}, Refused(ENOENT, Cause.INTERPRETER), 127),
    (["lost-in-path"], {"PATH": FIRST}, Refused(ENOENT, Cause.INTERPRETER), 127),
    (["./first/data"], {}, Refused(EACCES, Cause.PERMISSION), 126),
    (["data"], {"PATH": FIRST}, Refused(EACCES, Cause.PERMISSION), 126),
    (["./folder"], {}, Refused(EACCES, Cause.PERMISSION), 126),
    (["folder"], {"PATH": ":/bin"}, Refused(EACCES, Cause.PERMISSION), 126),
]


@pytest.mark.parametrize(("program", "env", "refused", "code"), REFUSED)
def test_refuses_as_docker_init_does_and_says_why(
    folder: Path, program: list[str], env: dict[str, str], refused: Refused, code: int
) -> None:
    assert by_init(folder, program, env) == (code, "", refused)
    expected, complaint = by_docker_init(folder, program, env)
    assert code == expected
    assert "FATAL" in complaint


LONG = {"N": "x" * 200_000}


@pytest.mark.parametrize(
    ("program", "env", "refused", "code"),
    [
        # docker-init lets a shell try to run a program for other machines.
        (["./foreign"], {}, Refused(ENOEXEC, Cause.ARCHITECTURE), 126),
        (["foreign"], {"PATH": ":/bin"}, Refused(ENOEXEC, Cause.ARCHITECTURE), 126),
        # It exits with 1 after all other errors.
        (["./own-script/game"], {}, Refused(ENOTDIR, Cause.MISSING), 127),
        (["x" * 256], {}, Refused(ENAMETOOLONG, Cause.OTHER), 126),
        (["true"], LONG, Refused(E2BIG, Cause.LENGTH), 126),
    ],
)
def test_says_more_than_docker_init(
    folder: Path, program: list[str], env: dict[str, str], refused: Refused, code: int
) -> None:
    assert by_init(folder, program, env) == (code, "", refused)


@pytest.mark.parametrize("program", [case[0] for case in REFUSED])
def test_refuses_the_same_in_place(folder: Path, program: list[str]) -> None:
    with InitProcess(folder / "channel", env={"PATH": FIRST}, cwd=folder) as init:
        init.hand_over(*program)
        reports = init.left_reports()
        exit_code = init.exit_code()
    with InitProcess(folder / "other", env={"PATH": FIRST}, cwd=folder) as init:
        init.hand_over(*program, in_place=True)
        assert init.left_reports() == reports
        assert init.exit_code() == exit_code


def test_given_variables_replace_those_of_the_container(tmp_path: Path) -> None:
    own = {"PATH": "/bin:/usr/bin", "HOME": "/", "A": "1", "AB": "2", "EMPTY": ""}
    with InitProcess(tmp_path, env=own) as init:
        init.hand_over("env", env={"A": "one", "B": "2", "HOME": "/root", "EMPTY": "no"})
        assert sorted(init.output().splitlines()) == [
            "A=one",
            "AB=2",
            "B=2",
            "EMPTY=no",
            "HOME=/root",
            "PATH=/bin:/usr/bin",
        ]


def test_given_path_finds_the_program(folder: Path) -> None:
    own = {"PATH": f"{folder}/first"}
    with InitProcess(folder / "channel", env=own, cwd=folder) as init:
        init.hand_over("twice", env={"PATH": "second"})
        assert init.output() == "second\n"


@pytest.mark.root
def test_script_needs_a_shell(tmp_path: Path) -> None:
    """The root has nothing but the init and a script, as an image from scratch."""
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(PATH, root / "tiltyard-init")
    (root / "script").write_text("echo plain\n")
    (root / "script").chmod(0o755)
    with InitProcess(
        root / "channel", before=["chroot", root], program="/tiltyard-init", seen_as="/channel"
    ) as init:
        init.hand_over("/script")
        assert init.left_reports() == [Refused(ENOENT, Cause.INTERPRETER)]
        assert init.exit_code() == 127
