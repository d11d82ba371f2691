"""What the project is built and tested with: Makefile, CI, policy of skips, leaks, harness."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.api_client import ApiClient
from tests.support.deployment import StepFailedError, Steps
from tests.support.harness import ROOT, Process, copy_sources, free_port, to_toml
from tests.support.real_parts_policy import MARKERS
from tests.up import announced

TARGETS = [
    *("bench", "clean", "demo", "fuzz", "help", "install", "install-agent"),
    *("install-controlplane", "lint", "lock", "mutants", "test", "test-ci", "test-faults"),
    *("uninstall-agent", "uninstall-controlplane", "unit", "up", "wheel"),
]


def run_pytest(
    folder: Path,
    code: str,
    *options: str,
    ci: str = "true",
    plugin: str = "tests.support.real_parts_policy",
) -> tuple[int, str]:
    """Run a test module in a process of its own; return its exit code and output."""
    module = folder / "test_it.py"
    module.write_text(f"import pytest\n{code}")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", plugin, "-p", "no:cacheprovider"),
            *("-c", ROOT / "pyproject.toml", "--rootdir", folder, module),
            *options,
        ],
        cwd=ROOT,
        env={**os.environ, "CI": ci, "PYTHONPATH": f"{ROOT}:{folder}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    return done.returncode, done.stdout + done.stderr


ON_THE_ENGINE = """
import os

@pytest.fixture
def docker_engine(): pass

@pytest.mark.docker
@pytest.mark.parametrize("number", range(8))
def test_it(docker_engine, number, request):
    with open(request.config.rootpath / "workers", "a") as workers:
        workers.write(os.environ["PYTEST_XDIST_WORKER"] + " ")
"""


def test_tests_of_the_machines_engine_run_one_after_the_other(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    [beside] = re.findall(r"^BESIDE := (.*)$", makefile, re.MULTILINE)
    options = (*shlex.split(beside), "--numprocesses=2")
    code, output = run_pytest(tmp_path, ON_THE_ENGINE, *options)
    assert code == 0, output
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 8
    assert len(set(workers)) == 1


SKIPS = """
@pytest.fixture
def part(): pytest.skip("why")

@pytest.mark.{0}
def test_{0}_skips_itself(): pytest.skip("why")

@pytest.mark.{0}
@pytest.mark.skip("why")
def test_{0}_is_marked(): pass

@pytest.mark.{0}
def test_{0}_has_a_fixture_that_skips(part): pass

@pytest.mark.{0}
@pytest.mark.xfail(run=False)
def test_{0}_is_not_run(): pass
"""


@pytest.mark.slow
def test_in_ci_a_skip_of_a_test_of_the_real_parts_fails(tmp_path: Path) -> None:
    code = "".join(SKIPS.format(marker) for marker in MARKERS)
    status, output = run_pytest(tmp_path, code, ci="")
    assert status == 0, output
    assert "9 skipped, 3 xfailed" in output
    status, output = run_pytest(tmp_path, code)
    assert status == 1
    assert "\n3 failed, 9 errors in " in output, output  # what skips before the test is an error
    for marker in MARKERS:
        assert output.count(f"skipped in CI, but it needs {marker}: ") >= 4


@pytest.mark.slow
def test_in_ci_the_skip_of_a_whole_module_fails(tmp_path: Path) -> None:
    code = "pytest.skip('why', allow_module_level=True)"
    assert run_pytest(tmp_path, code, ci="")[0] == 5
    assert run_pytest(tmp_path, code)[0] == 2


def test_in_ci_other_tests_may_skip(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, "def test_it(): pytest.skip('why')")[0] == 0


@pytest.mark.slow
def test_without_its_part_a_test_is_skipped_here_and_fails_in_ci(tmp_path: Path) -> None:
    code = (
        "from tests.support import real_parts_policy\n"
        "real_parts_policy.registry_unavailable = lambda: 'there is none'\n"
        "@pytest.mark.registry\ndef test_it(): pass"
    )
    assert "1 skipped" in run_pytest(tmp_path, code, ci="")[1]
    assert "there is none" in run_pytest(tmp_path, code)[1]


LEAKS = {
    "a task": """
import asyncio
left = []
async def test_it():
    left.append(asyncio.create_task(asyncio.sleep(60), name='lost'))
""",
    "a thread": """
import threading
end = threading.Event()
def test_it():
    threading.Thread(target=end.wait, name='lost', daemon=True).start()
""",
    "a blocked loop": """
import agent
source = 'import time\\ndef block(): time.sleep(0.01)'
exec(compile(source, agent.__path__[0] + '/blocks.py', 'exec'))
async def test_it():
    block()
""",
}
COMPLAINTS = {
    "a task": "left tasks behind: ['lost']",
    "a thread": "left threads behind: ['lost']",
    "a blocked loop": "Blocking call to time.sleep",
}


@pytest.mark.slow
@pytest.mark.parametrize("leak", LEAKS)
def test_what_a_test_leaves_behind_fails_it(tmp_path: Path, leak: str) -> None:
    status, output = run_pytest(tmp_path, LEAKS[leak], plugin="tests.support.leaks")
    assert status == 1
    assert COMPLAINTS[leak] in output


NO_LEAKS = {
    "what ends in its own time": """
import asyncio, threading, time
async def test_it():
    asyncio.create_task(asyncio.sleep(0.05))
    threading.Thread(target=time.sleep, args=(0.05,)).start()
    await asyncio.to_thread(time.sleep, 0)
""",
    "a thread that C code began": """
import _thread, threading, time
def foreign():
    threading.current_thread()
    time.sleep(30)
def test_it():
    _thread.start_new_thread(foreign, ())
    while not any('Dummy-' in thread.name for thread in threading.enumerate()):
        time.sleep(0.01)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("code", NO_LEAKS.values(), ids=NO_LEAKS.keys())
def test_what_a_test_may_leave_behind(tmp_path: Path, code: str) -> None:
    status, output = run_pytest(tmp_path, code, plugin="tests.support.leaks")
    assert status == 0, output


def test_make_help_lists_every_target() -> None:
    done = subprocess.run(
        ["make"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=10
    )
    assert sorted(line.split()[0] for line in done.stdout.splitlines()) == TARGETS


def test_unit_tests_need_no_real_part() -> None:
    for path in (ROOT / "tests" / "unit").rglob("*.py"):
        text = path.read_text("utf-8")
        assert not re.search(rf"mark\.({'|'.join(MARKERS)}|slow)\b", text), path
        package = path.relative_to(ROOT / "tests" / "unit").parent
        assert (ROOT / package).is_dir() or str(package) == ".", f"{path} mirrors no package"


def test_every_package_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    include = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert include == ["agent*", "controlplane*", "tiltyard*"]
    for folder in ("agent", "controlplane", "tiltyard"):
        for path in (ROOT / folder).rglob("*.py"):
            assert path.with_name("__init__.py").exists(), path  # else it is no package


@pytest.mark.root
@pytest.mark.parametrize("what", ["all", "python"])
def test_a_user_without_root_is_told_in_one_sentence_what_to_do(what: str) -> None:
    script = (ROOT / ".ci" / "prerequisites").read_text()
    # Without python the user has to install it; with it, `make lint` needs nothing of root.
    missing = "find_python() { return 1; }\n"
    script = re.sub(
        r"^find_python\(\) \{.*?^\}\n", lambda _: missing, script, flags=re.MULTILINE | re.DOTALL
    )
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "bash", "-s", what, "demo"],
        input=script,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "sudo" in done.stderr


def test_ci_runs_lint_and_all_tests_and_ends_with_the_slow_ones() -> None:
    commands = [
        line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line[:1].isalpha()
    ]
    assert commands[-3:] == ["limit 480 make lint", "tests 600 test", "tests 2100 test-ci"]
    assert "export CI=true" in commands
    assert sum(int(command.split()[1]) for command in commands[-3:]) < 54 * 60


def test_ci_ends_with_the_summary_of_pytest_also_when_tests_fail(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    summary = "===== 1 failed, 2 passed in 0.12s ====="
    (tmp_path / "Makefile").write_text(
        f"lint:\n\t@true\ntest:\n\t@echo '{summary}'; exit 1\ntest-ci:\n\t@echo not reached\n"
    )
    done = subprocess.run(
        [tmp_path / ".ci" / "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == summary
    assert "not reached" not in done.stdout


def test_steps_print_a_line_each_and_the_reason_of_the_one_that_fails() -> None:
    lines: list[str] = []
    steps = Steps(lines.append)
    with steps.step("first") as notes:
        notes.append("what came of it")
    with pytest.raises(StepFailedError), steps.step("second"):
        raise RuntimeError("no such thing")
    assert re.fullmatch(r"ok +\d+\.\d{3} s  first: what came of it", lines[0])
    assert re.fullmatch(r"FAILED +\d+\.\d{3} s  second: no such thing", lines[1])
    assert len(lines) == 2


def test_announces_to_its_owner_only_and_takes_it_back(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    with announced(path, {"token": "secret"}):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_text() == '{\n  "token": "secret"\n}'
    assert list(tmp_path.iterdir()) == []


def test_writes_settings_as_toml() -> None:
    settings = {
        "text": 'a "quoted" \\ ü\n',
        "number": 3,
        "true": True,
        "empty": [],
        "words": ["a", "b"],
        "tables": [{"name": "x", "aliases": []}, {"name": "y", "aliases": ["z"]}],
    }
    assert tomllib.loads(to_toml(settings)) == settings


def test_a_process_that_fails_to_start_says_why_and_is_gone(tmp_path: Path) -> None:
    process = Process("it", tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"it ended with 3:\nno such luck"):
        process.launch(["sh", "-c", "echo no such luck; exit 3"], lambda: False)
    assert process.returncode is None


def test_a_process_that_ignores_sigterm_is_ended_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.harness._STOP_TIMEOUT", 0.2)
    process = Process("it", tmp_path / "log")
    process.launch(
        ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"],
        lambda: "up" in process.tail(),
    )
    pid = process.pid
    with pytest.raises(RuntimeError, match="it ignored SIGTERM"):
        process.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_free_ports_are_free() -> None:
    assert len({free_port() for _ in range(5)}) > 1


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This working tree as a clone would have it: no .venv, nothing that was made here."""
    copy_sources(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.docker
@pytest.mark.registry
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("docker_engine")  # whose other users have the same ports, in turn
def test_make_demo_is_the_first_command_after_a_clone(clone: Path) -> None:
    done = subprocess.run(
        ["make", "demo"], cwd=clone, capture_output=True, text=True, check=False, timeout=580
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert all(re.match(r"ok +\d+\.\d{3} s  ", line) for line in lines), done.stdout
    assert lines[-1].endswith("  demo")
    assert not (clone / ".tiltyard" / "dev.json").exists()


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.docker
@pytest.mark.registry
@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_make_up_serves_until_it_is_told_to_end_and_leaves_nothing(
    number: signal.Signals, clone: Path, docker_engine: Path
) -> None:
    dev_json = clone / ".tiltyard" / "dev.json"
    # Not below tmp_path: the path of a unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="up-") as temporary, (clone / "log").open("wb") as log:
        up = subprocess.Popen(
            [sys.executable, "-m", "tests.up"],
            cwd=clone,
            env={**os.environ, "TMPDIR": temporary},
            stdout=log,
            stderr=log,
        )
        try:
            while not dev_json.exists():
                assert up.poll() is None, (clone / "log").read_text()
                time.sleep(0.1)
            told = json.loads(dev_json.read_text())
            assert stat.S_IMODE(dev_json.stat().st_mode) == 0o600
            use(told)
            up.send_signal(number)
            assert up.wait(60) == 0, (clone / "log").read_text()
        finally:
            up.kill()
            up.wait()
        assert not dev_json.exists()
        assert list(Path(temporary).iterdir()) == []
        assert processes_of(temporary) == []
    assert containers_of(docker_engine, told["registry"]["address"]) == []


def use(told: dict[str, Any]) -> None:
    """Use a `make up` as a script would, and leave a session running."""
    assert sorted(told) == sorted(
        [
            *("base_url", "token", "operator_token", "other_token", "location", "image"),
            "registry",
        ]
    )
    assert sorted(told["registry"]) == ["address", "name"]
    client = ApiClient(told["base_url"], told["token"])
    body = {"location": told["location"], "image": told["image"]}
    made = client.post("/session", body).expect(201).json()
    other = ApiClient(told["base_url"], told["other_token"])
    assert other.get("/session", all="true").expect(200).json() == {"sessions": []}
    other.get(f"/session/{made['id']}").expect(404)
    assert made["host"]


def processes_of(folder: str) -> list[str]:
    """The command lines of the processes that were given a path below this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if folder in command:
                found.append(command)
    return found


def containers_of(docker_socket: Path, registry_address: str) -> list[str]:
    client = docker.DockerClient(base_url=f"unix://{docker_socket}", timeout=30)
    try:
        containers = client.api.containers(all=True)
        return [one["Id"] for one in containers if one["Image"].startswith(registry_address)]
    finally:
        client.close()
