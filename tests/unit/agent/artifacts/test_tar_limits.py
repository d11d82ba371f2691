"""Limits of an archive: of its bytes, entries, depth and names."""

import tarfile

import pytest

from agent.artifacts.tar_filter import TarFilter, TarLimits
from agent.domain.errors import ArtifactTooLargeError
from tests.support.agent.tars import ROOT, Entry, filtered, folder, read, soft, tar_of

TOP = folder(ROOT)
SMALL = TarLimits(total_bytes=10_240, entries=4, depth=3, name_bytes=300)


def big(size: int) -> bytes:
    """The beginning of a tar whose first file has the given size."""
    return tar_of([Entry(ROOT, attributes={"size": str(size)})], end=False)


@pytest.mark.parametrize(
    ("tar", "what"),
    [
        (tar_of([Entry(b"data", content=bytes(10_000))]), "bytes"),
        (tar_of([TOP, *(Entry(b"data/%d" % n) for n in range(4))]), "entries"),
        (tar_of([TOP, *(Entry(b"data/%d" % n, b"6") for n in range(4))]), "entries"),
        (
            tar_of([TOP, folder(b"data/a"), folder(b"data/a/b"), Entry(b"data/a/b/c")]),
            "nested directories",
        ),
        (tar_of([TOP, Entry(b"data/" + b"n" * 296)]), "bytes in a name"),
        (tar_of([soft(b"data", b"n" * 301)]), "bytes in a link"),
    ],
)  # fmt: skip
def test_rejects_tar_beyond_the_limits(tar: bytes, what: str) -> None:
    with pytest.raises(ArtifactTooLargeError) as error:
        filtered(tar, limits=SMALL)
    assert error.value.what == what


@pytest.mark.parametrize(
    "tar",
    [
        tar_of([Entry(b"data", content=bytes(10_240 - 512 - 1024))]),
        tar_of([TOP, folder(b"data/a"), Entry(b"data/a/b"), Entry(b"data/c")]),
        tar_of([TOP, Entry(b"data/" + b"n" * 295)]),
        tar_of([soft(b"data", b"n" * 300)]),
    ],
)
def test_accepts_tar_at_the_limits(tar: bytes) -> None:
    filtered(tar, limits=SMALL)


@pytest.mark.parametrize(
    "size",
    [
        100_000_000,
        2**31,
        2**43,
        2**63 - 1,
    ],
)
def test_rejects_announced_size_before_its_first_byte(size: int) -> None:
    with pytest.raises(ArtifactTooLargeError) as error:
        TarFilter(ROOT).feed(big(size))
    assert error.value.limit == 100_000_000


def test_joins_ustar_prefix_and_counts_the_result() -> None:
    tar = b""
    for name in ("data", f"data/{'a' * 90}", f"data/{'a' * 90}/{'b' * 90}"):
        member = tarfile.TarInfo(name)
        member.type = tarfile.DIRTYPE
        tar += member.tobuf(tarfile.USTAR_FORMAT)
    tar += bytes(1024)
    assert read(filtered(tar))[-1].name == name.encode()
    with pytest.raises(ArtifactTooLargeError) as error:
        filtered(tar, limits=TarLimits(total_bytes=len(tar)))
    assert error.value.what == "bytes"


def test_streams_large_file() -> None:
    tar = TarFilter(ROOT)
    tar.feed(big(3_000_000))
    assert [len(tar.feed(bytes(1_000_000))) for _ in range(3)] == [1_000_000] * 3
