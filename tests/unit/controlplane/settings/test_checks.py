"""`config check` of the control plane: all mistakes at once, or the settings; no secrets."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controlplane.cli.main import main
from controlplane.settings.checks import all_mistakes
from controlplane.settings.model import Config, load_config
from tests.support.authority import AUTHORITY
from tests.support.certificates import SERVES, Signer
from tests.support.settings_files import assert_taken_or_told
from tiltyard.runtime.settings.mistakes import SettingsError
from tiltyard.runtime.settings.report import EXIT_CONFIG

SECRET = "s3cret-pass"
SIGNER = Signer.new()


class Settings:
    """A file, to which mistakes are added from its third line on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "controlplane.toml"
        self.base = f'state_dir = "{folder}/state"\napi_listen = "127.0.0.1:8080"\n'

    def check(self, text: str = "", *options: str, **environment: str) -> Result:
        self.path.write_text(self.base + text)
        command = ["config", "check", "--config", str(self.path), *options]
        variables = {f"TILTYARD_CONTROLPLANE_{key}": value for key, value in environment.items()}
        return CliRunner().invoke(main, command, env=variables)

    def told(self, text: str) -> list[str]:
        """Lines of all that is told, without the name of the file."""
        return self.check(text).stderr.replace(f"{self.path}:", "").splitlines()

    def file(self, name: str, content: str, mode: int = 0o600) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(content)
        path.chmod(mode)
        return path

    def certificate(self, life: timedelta, mode: int = 0o600) -> str:
        party = SIGNER.sign(SERVES, hosts=["localhost"], life=life)
        chain = self.file("chain.pem", party.certificate.decode())
        key = self.file("key.pem", party.key.decode(), mode)
        return f'tls_certificate = "{chain}"\ntls_key = "{key}"\n'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path)


def test_all_mistakes_are_told_at_once_each_with_its_place_and_hint(settings: Settings) -> None:
    password = settings.file("password", SECRET, 0o644)
    result = settings.check(
        f"""\
regoins = ["eu"]
start_rate = "quick"
start_burst = 0
lost_after = 10
log_level = "loud"
tls_certificate = "/etc/chain"
behind_proxy = ["10.0.0.1/8"]
failpoint = "nowhere"
node_pools = ["a b", "default", "default"]
[[registries]]
name = "one"
adress = "one.example"
username = "robot"
password_file = "{password}"
[[registries]]
name = "two"
address = "http://two.example"
[[agents]]
name = "init"
address = "host:1"
region = "eu"
""",
        MAX_CONNECTIONS="many",
        START_BRUST="7",
        NODE_POOL="a",
    )
    assert result.exit_code == EXIT_CONFIG
    assert result.stdout == ""
    lines = result.stderr.replace(f"{settings.path}:", "").splitlines()
    expected = [
        "3: regoins: unknown key 'regoins'; did you mean 'regions'?",
        "4: start_rate: must be a number, and is 'quick'; correct it, or take it out for",
        "5: start_burst: must be more than 0, and is 0; correct it, or take it out for the",
        "6: lost_after: must be more than unreachable_after, which is 30; raise it",
        "7: log_level: must be 'debug', 'info', 'warning' or 'error', and is 'loud'; correct it",
        "8: tls_certificate: goes together with tls_key; set both or none",
        "9: behind_proxy[0]: 10.0.0.1/8 has host bits set; correct it, or take it out",
        "10: failpoint: must be NAME:ACTION",
        "11: node_pools[0]: must be 1 to 128 of",
        "11: node_pools[2]: 'default' is there twice; take one out: the other is node_pools[1]",
        "12: registries[0].address: is missing; set it",
        "14: registries[0].adress: unknown key 'adress'; did you mean 'address'?",
        f"16: registries[0].password_file: others may read or write {password}; run `chmod 600",
        "19: registries[1].address: must be host[:port], with the port unless",
        "21: agents[0].name: 'init' is a name of the product itself; take another",
        "22: agents[0].address: must have the form unix:/path; hosts elsewhere are enrolled",
        "23: agents[0].region: unknown region 'eu'; put it among the regions, or take one of",
        "TILTYARD_CONTROLPLANE_MAX_CONNECTIONS: max_connections: must be a whole number, and",
        "TILTYARD_CONTROLPLANE_NODE_POOL: node_pool: unknown key 'node_pool' in the environment",
        "TILTYARD_CONTROLPLANE_START_BRUST: start_brust: unknown key 'start_brust' in the",
    ]
    for line, begin in zip(lines, expected, strict=True):
        assert line.startswith(begin)
    assert SECRET not in result.output


def test_settings_without_mistakes_are_shown_without_secrets(settings: Settings) -> None:
    password, ca = settings.file("password", SECRET), settings.file("ca.pem", AUTHORITY)
    text = f"""\
start_burst = 7
[[registries]]
name = "one"
address = "one.example"
username = "robot"
password_file = "{password}"
ca_file = "{ca}"
"""
    for option in ((), ("--json",)):
        result = settings.check(text, *option, START_RATE="3")
        assert result.exit_code == 0, result.output
        assert SECRET not in result.output
        assert "BEGIN CERTIFICATE" not in result.output
    shown: Any = json.loads(result.stdout)["settings"]
    assert shown.keys() == set(Config.model_fields)
    assert shown["start_burst"] == {"value": 7, "from": f"{settings.path}:3"}
    assert shown["start_rate"] == {"value": 3.0, "from": "TILTYARD_CONTROLPLANE_START_RATE"}
    assert shown["log_level"] == {"value": "info", "from": "default"}
    assert shown["registries"]["from"] == f"{settings.path}:4"
    assert shown["registries"]["value"][0]["username"] == "robot"


def test_what_the_settings_point_to_is_looked_at(settings: Settings) -> None:
    agent = f"{settings.folder}/none/agent.sock"
    told = settings.told(
        'enrol_listen = "127.0.0.1:8080"\nmetrics_listen = "192.0.2.1:9"\n'
        f'[[agents]]\nname = "a"\naddress = "unix:{agent}"\nregion = "local"\n'
    )
    assert [line.partition("; ")[0] for line in told] == [
        "3: enrol_listen: port 8080 is that of api_listen as well",
        "4: metrics_listen: warning: 192.0.2.1 is no address of this machine",
        f"7: agents[0].address: warning: there is no folder {settings.folder}/none",
    ]
    settings.base = 'state_dir = "state"\n'
    [relative] = settings.told("")
    assert relative.startswith("1: state_dir: is not absolute")


@pytest.mark.parametrize(
    ("days", "mode", "told", "code"),
    [
        (90, 0o600, "", 0),
        (5, 0o600, "3: tls_certificate: warning: {} ends on ", 0),
        (-1, 0o600, "3: tls_certificate: {} ended on ", EXIT_CONFIG),
        (90, 0o644, "4: tls_key: warning: all users can read ", 0),
    ],
)
def test_a_certificate_is_looked_at(
    settings: Settings, days: int, mode: int, told: str, code: int
) -> None:
    text = settings.certificate(timedelta(days=days), mode)
    result = settings.check(text)
    assert result.exit_code == code, result.output
    lines = result.stderr.replace(f"{settings.path}:", "").splitlines()
    assert len(lines) == bool(told)
    assert result.stderr.replace(f"{settings.path}:", "").startswith(
        told.format(settings.folder / "chain.pem")
    )
    assert settings.check(text, "--strict").exit_code == (EXIT_CONFIG if told else 0)


def test_serve_and_init_refuse_in_the_same_lines(settings: Settings) -> None:
    checked = settings.check("regoins = 1\nstart_burst = 0\n").stderr
    for command in ("serve", "init"):
        refused = CliRunner().invoke(main, [command, "--config", str(settings.path)])
        assert (refused.exit_code, refused.stderr) == (EXIT_CONFIG, checked)
    assert checked.count("\n") == 2


def test_a_file_that_is_no_toml_has_its_line(settings: Settings) -> None:
    [told] = settings.told("regions =\n")
    assert told.startswith("3: cannot read ")


@pytest.mark.parametrize("key", Config.model_fields)
def test_whatever_stands_for_a_key_is_taken_or_told(tmp_path: Path, key: str) -> None:
    assert_taken_or_told(
        tmp_path / "controlplane.toml",
        key,
        lambda path: list(all_mistakes(load_config(path, {}))),
        SettingsError,
    )
