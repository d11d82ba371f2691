"""Every command of docs/operations.md is run by a test, which this says for each section."""

import pytest

from tests.support.doc_examples import ROOT, examples

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")

TYPED = {
    "Draining a host": "tests/docker/test_procedures.py",
    "Lost hosts": "tests/docker/test_procedures.py",
    "Rotating the authority": "tests/docker/test_procedures.py",
    "When a disk is full": "tests/docker/test_procedure_full_disk.py",
    "Moving the agent's files": "tests/docker/test_procedure_full_disk.py",
    "Backup": "tests/docker/test_lost_database.py",
    "With a backup": "tests/docker/test_lost_database.py",
    "Without a backup, with the keys": "tests/docker/test_lost_database.py",
    "Without a backup or keys": "tests/docker/test_lost_database.py",
}
"""Procedures, and who types them line by line, to the last, against real parts."""

CHECKED = {
    "First steps": "tests/docker/test_procedures.py",
    "Install": "tests/systemd/test_install.py",
    "Firewall": "tests/docker/test_firewall.py",
    "Checking settings": "tests/unit/agent/settings/test_config_check.py",
    "Registry credentials": "tests/docker/test_stored_login.py",
    "Commands for operators": "tests/controlplane/test_operator_cli.py",
    "Explaining placement": "tests/controlplane/test_operator_cli.py",
    "Inspecting a host": "tests/agent/test_cli_debug.py",
    "Doctor": "tests/agent/test_doctor.py",
    "Enrol a host": "tests/flow/test_enrol_command.py",
    "Certificates": "tests/docker/test_procedures.py",
    "A compromised host": "tests/docker/test_procedures.py",
}
"""Sections that show commands rather than a procedure, and who runs such commands."""


def test_every_section_with_commands_has_a_test() -> None:
    shown = {example.heading for example in examples(PAGE)}
    assert shown - set(TYPED) - set(CHECKED) == set()
    assert set(TYPED) <= shown


@pytest.mark.parametrize("heading", TYPED)
def test_a_procedure_is_typed_as_the_page_has_it(heading: str) -> None:
    """The test has its lines from the page, and types all of them, or it fails."""
    text = (ROOT / TYPED[heading]).read_text("utf-8")
    assert f'procedure("{heading}")' in text or f'commands("{heading}")' in text


@pytest.mark.parametrize("test", sorted({*TYPED.values(), *CHECKED.values()}))
def test_named_test_exists(test: str) -> None:
    assert (ROOT / test).is_file()
