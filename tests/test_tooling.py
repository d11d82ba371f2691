"""What the project is built and tested with: Makefile, CI, policy of skips, leaks."""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.api_client import ApiClient
from tests.support.harness import ROOT, copy_sources
from tests.support.inner_pytest import run_pytest
from tests.support.leftovers import end_leftovers
from tests.support.private_network import PrivateNetwork
from tests.support.real_engine import SOCKET, remove_traces
from tests.support.real_parts_policy import MARKERS
from tests.up import main as up_command


def run(*command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; keep what it writes."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def run_module(
    folder: Path,
    code: str,
    *options: str,
    ci: str = "true",
    plugin: str = "tests.support.real_parts_policy",
) -> tuple[int, str]:
    """Run a test module in a process of its own; return its exit code and output."""
    (folder / "test_it.py").write_text(f"import pytest\n{code}")
    plugins = (plugin, "no:hypothesispytest")
    return run_pytest(folder, plugins, "-q", *options, environment={"CI": ci})


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
    options = (*shlex.split(beside.partition("$")[0]), "2")
    code, output = run_module(tmp_path, ON_THE_ENGINE, *options)
    assert code == 0, output
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 8
    assert len(set(workers)) == 1


def test_what_may_take_longest_begins_first(tmp_path: Path) -> None:
    code = "def test_short(): pass\n\n@pytest.mark.timeout(9000)\ndef test_long(): pass\n"
    _, output = run_module(tmp_path, code, "-vv")
    assert output.index("test_long") < output.index("test_short")


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
    status, output = run_module(tmp_path, code, ci="")
    assert status == 0, output
    assert "9 skipped, 3 xfailed" in output
    status, output = run_module(tmp_path, code)
    assert status == 1
    assert "\n3 failed, 9 errors in " in output, output  # what skips before the test is an error
    for marker in MARKERS:
        assert output.count(f"skipped in CI, but it needs {marker}: ") >= 4


@pytest.mark.slow
def test_in_ci_the_skip_of_a_whole_module_fails(tmp_path: Path) -> None:
    code = "pytest.skip('why', allow_module_level=True)"
    assert run_module(tmp_path, code, ci="")[0] == 5
    assert run_module(tmp_path, code)[0] == 2


@pytest.mark.slow
def test_in_ci_other_tests_may_skip(tmp_path: Path) -> None:
    assert run_module(tmp_path, "def test_it(): pytest.skip('why')")[0] == 0


@pytest.mark.slow
def test_without_its_part_a_test_is_skipped_here_and_fails_in_ci(tmp_path: Path) -> None:
    code = (
        "from tests.support import real_parts_policy\n"
        "real_parts_policy.registry_unavailable = lambda: 'there is none'\n"
        "@pytest.mark.registry\n"
        "def test_it(): pass\n"
    )
    status, output = run_module(tmp_path, code, ci="")
    assert status == 0
    assert "1 skipped" in output
    status, output = run_module(tmp_path, code)
    assert status == 1
    assert "there is none" in output


LEAKS = """
import agent, asyncio, threading
from tests.support import leaks
leaks.THREAD_LOOKS = 20
left = []
async def test_a_task():
    left.append(asyncio.create_task(asyncio.sleep(60), name='lost'))

end = threading.Event()
def test_a_thread():
    threading.Thread(target=end.wait, name='lost', daemon=True).start()

source = 'import time\\ndef block(): time.sleep(0.01)'
exec(compile(source, agent.__path__[0] + '/blocks.py', 'exec'))
async def test_a_blocked_loop():
    block()
"""


@pytest.mark.slow
def test_what_a_test_leaves_behind_fails_it(tmp_path: Path) -> None:
    _, output = run_module(tmp_path, LEAKS, plugin="tests.support.leaks")
    assert "left tasks behind: ['lost']" in output
    assert "left threads behind: ['lost']" in output
    assert "Blocking call to time.sleep" in output


ENDS_BY_ITSELF = """
import asyncio, threading, time
async def test_it():
    asyncio.create_task(asyncio.sleep(0.05))
    threading.Thread(target=time.sleep, args=(0.05,)).start()
    await asyncio.to_thread(time.sleep, 0)
"""


@pytest.mark.slow
def test_tasks_and_threads_that_end_by_themselves_are_no_leaks(tmp_path: Path) -> None:
    status, output = run_module(tmp_path, ENDS_BY_ITSELF, plugin="tests.support.leaks")
    assert status == 0, output


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    declared = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    targets = {name for line in declared for name in line.split()}
    done = run("make", cwd=ROOT, timeout=50)
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    assert targets - set(listed) == {"everything", "build/wheel-venv"}  # these are not for users
    assert sorted(set(listed)) == sorted(listed)


def test_every_folder_of_the_programs_is_an_installed_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    include = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert include == ["agent*", "controlplane*", "tiltyard*"]
    for program in ("agent", "controlplane", "tiltyard"):
        folders = {path.parent for path in (ROOT / program).rglob("*.py")}
        assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_unit_tests_need_no_real_part() -> None:
    for path in (ROOT / "tests" / "unit").rglob("*.py"):
        text = path.read_text("utf-8")
        assert not re.search(rf"mark\.({'|'.join(MARKERS)}|slow)\b", text), path
        package = path.relative_to(ROOT / "tests" / "unit").parent
        assert (ROOT / package).is_dir() or str(package) == ".", f"{path} mirrors no package"


@pytest.mark.root
@pytest.mark.parametrize("what", ["all", "python"])
def test_a_user_without_root_gets_one_sentence_about_what_to_do(what: str) -> None:
    script = (ROOT / ".ci" / "prerequisites").read_text()
    # Without python the user has to install it; with it, `make lint` needs nothing of root.
    missing = "find_python() { return 1; }\n"
    script = re.sub(
        r"^find_python\(\) \{.*?^\}\n", lambda _: missing, script, flags=re.MULTILINE | re.DOTALL
    )
    command = ("setpriv", "--reuid=65534", "--clear-groups", "bash", "-s", what, "demo")
    done = run(*command, input=script, cwd="/", timeout=10)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "sudo" in done.stderr


def test_engine_of_an_unknown_release_is_refused() -> None:
    done = run(ROOT / ".ci" / "engine", "buster", timeout=10)
    assert done.returncode == 1
    assert done.stderr == "engine: ENGINE must be bookworm, trixie or sid, not 'buster'\n"


def test_targets_keep_what_python_compiled() -> None:
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    shown = run("make", "-s", "--eval=show: ; @env", "show", cwd=ROOT, env=env, timeout=50)
    assert "PYTHONDONTWRITEBYTECODE" not in shown.stdout


@pytest.mark.parametrize(
    ("target", "needs"),
    [
        ("demo", False),
        ("up", False),
        ("test", True),
    ],
)
def test_only_tests_need_packages_of_npm(target: str, needs: bool) -> None:
    shown = run("make", "--dry-run", "--always-make", target, cwd=ROOT, timeout=50)
    assert ("npm ci" in shown.stdout) is needs


def test_part_python_makes_its_environment_with_the_newest_python(tmp_path: Path) -> None:
    newest = tmp_path / "python3.13"
    newest.symlink_to(sys.executable)
    show = ("--silent", "--eval=show: ; @.ci/prerequisites find-python", "show", "PART=python")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}  # without an outer make's variables
    shown = run("make", *show, cwd=ROOT, env=environment, timeout=50)
    assert shown.stdout == f"{newest}\n"
    assert shown.stderr == ""


@pytest.mark.root
def test_a_service_gets_a_python_that_its_user_may_run(tmp_path: Path) -> None:
    own = tmp_path / "python3"  # pytest's folders are root's alone
    own.symlink_to(sys.executable)
    find = (ROOT / ".ci" / "prerequisites", "find-python")
    environment = {"PYTHON": str(own)}
    assert run(*find, env=os.environ | environment, timeout=50).stdout == f"{own}\n"
    shown = run(*find, "--for-service", env=os.environ | environment, timeout=50)
    assert shown.stdout == "/usr/bin/python3\n"


def test_ci_ends_with_the_summary_of_pytest_also_when_tests_fail(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    for program in (".ci/prerequisites", ".ci/engine", ".venv/bin/python"):
        (tmp_path / program).symlink_to("/bin/true")
    summary = "===== 1 failed, 2 passed in 0.12s ====="
    rules = f"demo lint:;\ntest:\n\t@echo '{summary}'; exit 1\ntest-ci:\n\t@echo not reached\n"
    (tmp_path / "Makefile").write_text(rules)
    done = run("sh", "-c", f"{tmp_path}/.ci/run 2>&1", timeout=30)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == summary
    assert "not reached" not in done.stdout


INIT = "agent/init/bin/tiltyard-init"  # The one of containers, which `make install` compiles


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This working tree as a clone would have it: no .venv, nothing that was made here."""
    copy_sources(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.thorough  # the gate begins with it
@pytest.mark.root
@pytest.mark.docker
@pytest.mark.registry
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("docker_engine")  # whose other users have the same ports, in turn
def test_make_demo_is_the_first_command_after_a_clone(clone: Path) -> None:
    done = run("make", "demo", cwd=clone, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert all(re.match(r"ok +\d+\.\d{3} s  ", line) for line in lines), done.stdout
    assert lines[-1].endswith("  demo")
    assert not (clone / ".tiltyard" / "dev.json").exists()


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.docker
@pytest.mark.registry
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_make_up_serves_until_a_signal_and_leaves_nothing(
    number: signal.Signals, clone: Path, docker_engine: Path
) -> None:
    made = run("make", INIT, cwd=clone)
    assert made.returncode == 0, made.stderr
    dev_json = clone / ".tiltyard" / "dev.json"
    # Not below tmp_path: the path of a unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="up-") as temporary:
        with deployment_of(clone, temporary) as up:
            shown = json.loads(dev_json.read_text())
            assert stat.S_IMODE(dev_json.stat().st_mode) == 0o600
            use(shown)
            if number is signal.SIGKILL:  # of the agent: nobody is left to end its sessions
                subprocess.run(["pkill", "-KILL", "-f", f"agent serve .*{temporary}"], check=True)
            else:
                up.send_signal(number)
            assert up.wait(60) == (number is signal.SIGKILL), (clone / "log").read_text()
        assert not dev_json.exists()
        assert list(Path(temporary).iterdir()) == []
        assert processes_of(temporary) == []
    assert remove_traces(docker_engine, shown["registry"]["address"]) == []


@pytest.fixture
def private_network() -> Iterator[PrivateNetwork]:
    with PrivateNetwork.made() as network:
        yield network


@contextlib.contextmanager
def deployment_of(
    clone: Path, temporary: str, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run what `make up` runs, until it serves, and kill it in the end."""
    with (clone / "log").open("wb") as log:
        up = subprocess.Popen(
            [sys.executable, "-m", "tests.up", *arguments],
            cwd=clone,
            env={**os.environ, "TMPDIR": temporary},
            stdout=log,
            stderr=log,
        )
        try:
            while not (clone / ".tiltyard" / "dev.json").exists():
                assert up.poll() is None, (clone / "log").read_text()
                time.sleep(0.1)
            yield up
        finally:
            up.kill()
            up.wait()
            end_leftovers(SOCKET, Path(temporary))


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.docker
@pytest.mark.registry
@pytest.mark.usefixtures("docker_engine")
def test_games_of_make_up_are_played_from_another_network(
    clone: Path, private_network: PrivateNetwork
) -> None:
    made = run("make", INIT, cwd=clone)
    assert made.returncode == 0, made.stderr
    address = private_network.host_address
    with (
        tempfile.TemporaryDirectory(prefix="up-") as temporary,
        deployment_of(clone, temporary, "--address", address) as up,
    ):
        shown = json.loads((clone / ".tiltyard" / "dev.json").read_text())
        session = use(shown)
        assert session["host"] == address
        port = session["ports"][0]["host"]
        player = (
            f"from tests.demo_game.player import udp_round_trip as ask; ask({address!r}, {port})"
        )
        inside = ("ip", "netns", "exec", private_network.name)
        subprocess.run([*inside, sys.executable, "-c", player], cwd=clone, check=True, timeout=60)
        up.terminate()
        assert up.wait(60) == 0, (clone / "log").read_text()


@pytest.mark.parametrize("address", ["192.0.2.7", "0.0.0.0", "localhost", "::1"])
def test_games_of_make_up_are_reached_at_an_address_of_this_machine(address: str) -> None:
    found = CliRunner().invoke(up_command, ["--address", address])
    assert found.exit_code == 2
    assert "address" in found.output


def use(shown: dict[str, Any]) -> dict[str, Any]:
    """Use a `make up` as a script would, and leave a session running."""
    assert sorted(shown) == sorted(
        [
            "base_url",
            "token",
            "operator_token",
            "other_token",
            "location",
            "image",
            "registry",
        ]
    )
    assert sorted(shown["registry"]) == ["address", "name"]
    client = ApiClient(shown["base_url"], shown["token"])
    body = {"location": shown["location"], "image": shown["image"]}
    made = client.post("/session", body).expect(201).json()
    other = ApiClient(shown["base_url"], shown["other_token"])
    assert other.get("/session", all="true").expect(200).json() == {"sessions": []}
    other.get(f"/session/{made['id']}").expect(404)
    assert made["host"]
    return dict(made)


def processes_of(folder: str) -> list[str]:
    """The command lines of the processes that were given a path below this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if folder in command:
                found.append(command)
    return found
