"""Every link between the pages, and every heading that it means, is there."""

import re
from pathlib import Path

import pytest

from tests.support.doc_examples import PAGES, ROOT, prose

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = next(
            n for n in range(99) if f"{name}-{n}" not in found and (n or name not in found)
        )
        found.add(f"{name}-{number}" if number else name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for link in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_every_page_can_be_found_from_the_readme() -> None:
    found = set[Path]()
    unread = [ROOT / "README.md"]
    while unread:
        page = unread.pop()
        found.add(page)
        links = {link.partition("#")[0] for link in _LINK.findall(prose(page))}
        targets = {(page.parent / link).resolve() for link in links if link}
        folders = [target for target in targets if target.is_dir()]
        targets |= {page for folder in folders for page in folder.glob("*.md")}
        unread += [target for target in targets & set(PAGES) if target not in found]
    assert set(PAGES) - found == set()
