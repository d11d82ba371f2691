"""Words that the repository does not use; CONTRIBUTING.md lists what to write instead."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("agent", "controlplane", "tiltyard", "protos", "tests", "docs", "systemd")
SUFFIXES = {".py", ".proto", ".md", ".toml", ".sh", ".c", ".service", ".html", ".js"}
EXEMPT = {"CONTRIBUTING.md", "tests/test_words.py"}  # They list the words

FORBIDDEN = (
    r"mend(s|ed|ing)?",
    r"anew",
    r"fore(tell|tells|telling|told)",
    r"shall",
    r"whoever",
    r"(lend|lends|lent)",
    r"want of",
    r"so many",
    r"of no use",
    r"of ours",
    r"settle[sd]?",
    r"judge[sd]?",
    r"unheard",
    r"by a defect",
    r"(hangs?|hung) up on",
    r"as (it|they) should be",
    r"out of reach",
    r"which is the most",
    r"what comes of",
    r"has not the form",
    r"for ever",
    r"nobody's",
    r"(?<!_)tells(?!_)",  # but for names of tests
    r"\"\"\"tell whether",
    r"\"\"\"(as|of|with)",
    r"the latter",
    r"whose it is",
    r"what came of",
    r"what became of",
    r"heard of",
    r"\"\"\"by [a-z]+,? the",
    r"\"\"\"whether it",
    r"error: there is none",
    r"cannot [^\"\n]{1,60}: because",
)
"""Words and phrases in lower case, matched as parts of identifiers, too."""


def pages() -> Iterator[Path]:
    yield from (ROOT / "Makefile", *ROOT.glob("*.md"))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and not path.stem.endswith(("_pb2", "_pb2_grpc")):
                yield path


# A space also stands for the end of a line within a comment.
PHRASES = "|".join(FORBIDDEN).replace(" ", r"[\s#*/|_]+")
WORD = re.compile(rf"(?<![a-z])(?:{PHRASES})(?![a-z])")


def found_in(text: str) -> list[tuple[int, str]]:
    """Return the line of each forbidden word, and the word."""
    text = text.lower()  # the words are lower case: several times as fast as re.IGNORECASE
    return [(text[: one.start()].count("\n") + 1, one[0]) for one in WORD.finditer(text)]


def test_plain_words_are_used() -> None:
    found = {}
    for path in pages():
        name = str(path.relative_to(ROOT))
        if name not in EXEMPT and (words := found_in(path.read_text("utf-8"))):
            found[name] = words
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "a pool MENDS",
        "in want\n    # of memory",
        "settles_hosts",
        'def f():\n    """As `run`',
        '    images: Images\n    """By image the accounts',
        "hosts\n# heard of",
        "for_ever",
    ],
)
def test_finds(text: str) -> None:
    assert len(found_in(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "amended",
        "the recommendation",
        "test_tells_apart",
        "it wants an offer",
    ],
)
def test_leaves(text: str) -> None:
    assert found_in(text) == []
