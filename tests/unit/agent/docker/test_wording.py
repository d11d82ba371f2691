"""Texts of the tested engines in wording.tsv against the table, and texts that resemble them.

Columns: engines ("-" for a text that must not be recognised), the call or field that has it, its
meaning with the parts of the text, the text.
"""

from pathlib import Path

import pytest

from agent.docker.wording import TABLE, Wording, find

LINES = [
    line.split("\t")
    for line in Path(__file__).with_name("wording.tsv").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize(("engines", "where", "meaning", "text"), LINES)
def test_recognises_each_engines_texts(engines: str, where: str, meaning: str, text: str) -> None:
    found = find(where, text.replace("\\n", "\n"))
    parts = [f"{name}={part}" for name, part in found[1].items()] if found else []
    assert " ".join([found[0].name if found else "-", *parts]) == meaning
    assert (engines == "-") is (found is None)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.where}-{row.meaning.name}")
def test_each_row_has_a_text_of_each_of_its_engines(row: Wording) -> None:
    seen = [engines for engines, _, _, text in LINES if row.pattern.search(text)]
    assert {engine for engines in seen for engine in engines.split()} >= set(row.engines)
