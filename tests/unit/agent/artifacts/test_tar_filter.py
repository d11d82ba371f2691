"""A filtered archive has nothing that a hostile container or engine wrote into it."""

import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.errors import AgentError, ArtifactTooLargeError, UnreadableTarError
from tests.support.agent import tars
from tests.support.agent.tars import (
    LARGEST_TIME,
    ROOT,
    Entry,
    filtered,
    folder,
    hard,
    read,
    soft,
    tar_of,
)

DROPPED = {tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE}


# Random trees that a program in a container can create, and their expected output.

NAMES = st.one_of(
    st.binary(min_size=1, max_size=255).map(lambda name: name.translate(None, b"/\0")),
    st.sampled_from(
        [b"a", b"-rf", b"new\nline", b"\r", b"\x1b[31m", b"\xff\xfe", b"...", b"n" * 99]
    ),
).filter(lambda name: name not in {b"", b".", b".."})
LINKS = st.one_of(
    st.sampled_from([b"/etc/passwd", b"../../..", b"a", b"x" * 101, b"/proc/self/root"]),
    st.binary(min_size=1, max_size=300).map(lambda link: link.replace(b"\0", b"x")),
)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, *sorted(DROPPED)]
)


@st.composite
def trees(draw: st.DrawFn) -> list[Entry]:
    """Entries as the engine sends them: folders before content, links after their targets."""
    entries = [folder(ROOT)]
    folders = [ROOT]
    names = {ROOT}
    files: list[bytes] = []
    for _ in range(draw(st.integers(0, 12))):
        name = draw(st.sampled_from(folders)) + b"/" + draw(NAMES)
        kind = draw(KINDS)
        if name in names or (kind == tarfile.LNKTYPE and not files):
            continue
        names.add(name)
        (folders if kind == tarfile.DIRTYPE else files).append(name)
        content = draw(st.binary(max_size=2000)) if kind == tarfile.REGTYPE else b""
        link = draw(LINKS) if kind == tarfile.SYMTYPE else b""
        if kind == tarfile.LNKTYPE:
            link = draw(st.sampled_from(files[:-1] or [name]))
        if link == name:
            continue
        entries.append(
            Entry(
                name,
                kind,
                content,
                link,
                mode=draw(st.integers(0, 0o7777)),
                uid=draw(st.integers(0, 2**32 - 1)),
                gid=draw(st.sampled_from([0, 1000, 8**7 - 1, 8**7])),
                time=draw(st.sampled_from([-1, 0, 1_700_000_000, LARGEST_TIME, LARGEST_TIME + 9])),
                attributes=draw(
                    st.sampled_from([{}, {"SCHILY.xattr.user.x": "y" * 900, "comment": "c"}])
                ),
            )
        )
    return entries


def model(entries: list[Entry]) -> list[Entry]:
    """The expected output for a tree."""
    gone: set[bytes] = set()
    kept = []
    for entry in entries:
        if entry.kind in DROPPED or (entry.kind == tarfile.LNKTYPE and entry.link in gone):
            gone.add(entry.name)
            continue
        time = min(max(entry.time, 0), LARGEST_TIME)
        kept.append(replace(entry, mode=entry.mode & 0o777, time=time))
    return kept


@given(tree=trees(), pieces=st.integers(1, 3000))
def test_filters_hostile_trees_like_the_model(tree: list[Entry], pieces: int) -> None:
    found = read(filtered(tar_of(tree), pieces=pieces))
    assert found == model(tree)
    for entry in found:
        assert set(entry.attributes) <= {"path", "linkpath", "uid", "gid"}


@given(tree=trees(), data=st.data())
def test_corrupted_tar_is_rejected_or_safe(tree: list[Entry], data: st.DataObject) -> None:
    tar = bytearray(tar_of(tree))
    for _ in range(data.draw(st.integers(1, 4))):
        block = data.draw(st.integers(0, len(tar) // 512 - 1)) * 512
        at = block + data.draw(st.sampled_from([0, 1, 4, 100, 124, 128, 156, 157, 257, 345]))
        text = st.sampled_from([b"..", b"/.", b"77", b"\0\0", b"SL", b"\xff9"])
        tar[at : at + 2] = data.draw(text)
        tar[block:] = tars.resummed(bytes(tar[block:]))
    try:
        found = read(filtered(bytes(tar)))
    except (ArtifactTooLargeError, UnreadableTarError):
        return
    for entry in found:
        assert entry.name == ROOT or entry.name.startswith(ROOT + b"/")
        assert not {b"", b".", b".."} & set(entry.name.split(b"/"))
        assert entry.kind not in DROPPED
        assert entry.mode & ~0o777 == 0
    names = [entry.name for entry in found]
    assert len(names) == len(set(names))
    for entry in found:
        assert entry.kind != tarfile.LNKTYPE or entry.link in names


@given(data=st.binary(max_size=4096))
def test_rejects_noise(data: bytes) -> None:
    with pytest.raises(AgentError):
        filtered(data or b"x")


TOP = folder(ROOT)
FILE = Entry(b"data/x")


def with_attributes(records: bytes, entry: Entry) -> bytes:
    """An entry preceded by a PAX header with arbitrary content."""
    return tar_of([TOP, Entry(b"x", tarfile.XHDTYPE, records), entry])


REFUSED: dict[str, bytes] = {
    "parent": tar_of([TOP, Entry(b"data/../x")]),
    "ends in parent": tar_of([TOP, folder(b"data/..")]),
    "only parent": tar_of([Entry(b"..")]),
    "absolute": tar_of([TOP, Entry(b"/etc/passwd")]),
    "empty component": tar_of([TOP, Entry(b"data//x")]),
    "another root": tar_of([TOP, Entry(b"other")]),
    "begins below its root": tar_of([Entry(b"data/x")]),
    "below another root": tar_of([TOP, Entry(b"other/x")]),
    "beside the root": tar_of([TOP, Entry(b"database")]),
    "no parent directory": tar_of([TOP, Entry(b"data/none/x")]),
    "below a file": tar_of([TOP, Entry(b"data/x"), Entry(b"data/x/y")]),
    "below a link": tar_of([TOP, soft(b"data/x", b"/etc"), Entry(b"data/x/passwd")]),
    "twice": tar_of([TOP, soft(b"data/x", b"/etc"), Entry(b"data/x")]),
    "link to nothing": tar_of([TOP, hard(b"data/x", b"data/none")]),
    "link forward": tar_of([TOP, hard(b"data/x", b"data/y"), Entry(b"data/y")]),
    "link to itself": tar_of([TOP, hard(b"data/x", b"data/x")]),
    "link outside": tar_of([TOP, hard(b"data/x", b"/etc/passwd")]),
    "link through parent": tar_of([TOP, Entry(b"data/y"), hard(b"data/x", b"data/./y")]),
    "link to a folder": tar_of([TOP, hard(b"data/x", b"data")]),
    "folder with content": tar_of([Entry(b"data", tarfile.DIRTYPE, b"x")]),
    "link with content": tar_of([Entry(b"data", tarfile.SYMTYPE, b"x", link=b"y")]),
    "GNU sparse": tar_of([Entry(b"data", tarfile.GNUTYPE_SPARSE, b"x")]),
    "PAX sparse": tar_of([Entry(b"data", attributes={"GNU.sparse.realsize": str(2**62)})]),
    "GNU long name": tar_of([Entry(b"././@LongLink", tarfile.GNUTYPE_LONGNAME, b"data/x\0")]),
    "global attributes": tar_of([Entry(b"g", tarfile.XGLTYPE, b"11 path=/x\n"), Entry(b"data")]),
    "contiguous file": tar_of([Entry(b"data", tarfile.CONTTYPE)]),
    "attributes twice": tar_of([Entry(b"x", tarfile.XHDTYPE, b"7 a=bc\n")] * 2 + [Entry(b"data")]),
    "attributes of nothing": tar_of([Entry(b"x", tarfile.XHDTYPE, b"7 a=bc\n")]),
    "no attributes": with_attributes(b"", FILE),
    "too many attributes": tar_of([Entry(b"data", attributes={"comment": "x" * 65536})]),
    "record beyond the end": with_attributes(b"99 a=b\n", FILE),
    "record of no length": with_attributes(b"0 a=b\n", FILE),
    "record of negative length": with_attributes(b"-7 a=b\n", FILE),
    "record without value": with_attributes(b"5 ab\n", FILE),
    "NUL in a name": with_attributes(b"17 path=data/x\0y\n", FILE),
    "NUL in a link": with_attributes(b"16 linkpath=x\0y\n", soft(b"data/x", b"x")),
    "negative size": tar_of([Entry(b"data", attributes={"size": "-512"})]),
    "size of many digits": tar_of([Entry(b"data", attributes={"size": "1" * 21})]),
    "cut in a header": tar_of([TOP, Entry(b"data/x")])[:700],
    "cut in content": tar_of([Entry(b"data", content=b"x" * 600)])[:1024],
    "cut before the end": tar_of([TOP], end=False),
    "cut in attributes": tar_of([Entry(b"n" * 200)])[:512],
    "more after the end": tar_of([TOP]) + tar_of([Entry(b"data/x")]),
    "wrong checksum": tar_of([Entry(b"data")]).replace(b"0000644", b"0000744"),
    "old format": tars.resummed(tar_of([Entry(b"data")]).replace(b"ustar\0", bytes(6))),
    "nothing at all": b"",
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_rejects_tar_that_the_engine_does_not_write(case: str) -> None:
    with pytest.raises(UnreadableTarError):
        filtered(REFUSED[case])


def test_names_of_whole_container_begin_with_a_dot() -> None:
    tree = [folder(b"/"), folder(b"/etc"), Entry(b"/etc/x"), hard(b"/y", b"/etc/x")]
    data = filtered(tar_of(tree), root=b".")
    assert [entry.name for entry in read(data)] == [b".", b"./etc", b"./etc/x", b"./y"]
    assert [entry.link for entry in read(data)] == [b"", b"", b"", b"./etc/x"]
    assert data.startswith(b"./\0")


@pytest.mark.parametrize(
    ("source", "below"),
    [
        (b"real", b"real"),
        (b"/", b""),
    ],
)
def test_names_begin_with_what_was_asked_for(source: bytes, below: bytes) -> None:
    tree = [folder(source), Entry(below + b"/x"), hard(below + b"/y", below + b"/x")]
    found = read(filtered(tar_of(tree), root=b"saves"))
    assert [entry.name for entry in found] == [b"saves", b"saves/x", b"saves/y"]
    assert [entry.link for entry in found] == [b"", b"", b"saves/x"]


def test_preserves_names_and_links_of_every_length() -> None:
    for length in [*range(1, 130), *range(970, 1010), 4095]:
        root = b"n" * length
        for entry in (Entry(root), folder(root), soft(root, root)):
            assert read(filtered(tar_of([entry]), root=root)) == [entry]


def test_gnu_tar_unpacks_it_without_warnings(tmp_path: Path) -> None:
    tree = [
        TOP,
        Entry(b"data/plain", content=b"plain\n", mode=0o4755),
        hard(b"data/again", b"data/plain"),
        soft(b"data/soft", b"plain"),
        Entry(b"data/new\nline\r\x1b[31m", content=b"odd\n"),
        Entry(b"data/\xff\xfe", content=b"bytes\n"),
        Entry(b"data/\xc3\xbc", content=b"text\n"),
        folder(b"data/" + b"m" * 255),
        Entry(b"data/" + b"m" * 255 + b"/" + b"n" * 255, content=b"long\n", uid=2**31),
        Entry(b"data/fifo", tarfile.FIFOTYPE),
        Entry(b"data/last", content=b"x" * 1000),
    ]
    done = subprocess.run(
        ["tar", "--extract", "--no-same-owner", "--directory", tmp_path],
        input=filtered(tar_of(tree)),
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout == b""
    data = tmp_path / "data"
    files = [path for path in data.rglob("*") if path.is_file()]
    written = {b"data/" + bytes(path.relative_to(data)): path.read_bytes() for path in files}
    expected = {each.name: each.content for each in tree if each.kind == tarfile.REGTYPE}
    assert written == expected | dict.fromkeys((b"data/again", b"data/soft"), b"plain\n")
    assert (data / "again").samefile(data / "plain")
