"""Where tags have been pulled, and why pulls fail: only what the log does not have is news."""

import pytest

from controlplane.domain.applications.tag_places import (
    Available,
    Failed,
    Pulled,
    TagKey,
    TagNews,
    TagPlace,
    WrittenState,
    look_at_hosts,
    look_at_region,
)

TAG = TagPlace("alice", "game", "v1", "sha256:1", "hub/game@sha256:1", "eu", "default")
AWAY = TAG._replace(region="us")
OTHER = TAG._replace(account="bob")
NEXT = TAG._replace(name="v2", digest="sha256:2", image="hub/game@sha256:2")
EU = ("eu", "default")
HERE = frozenset({TAG.image})
NOTHING = frozenset[str]()
DENIED = {"denied": "h"}
AVAILABLE = WrittenState("sha256:1", "default", is_available=True)
FAILING = WrittenState("sha256:1", "default", reasons=frozenset({"denied"}))


HOSTS: list[tuple[str, list[TagPlace], frozenset[str], dict[TagKey, str], list[Pulled]]] = [
    ("first report", [TAG], HERE, {}, [Pulled(TAG, "h")]),
    ("the log has it", [TAG], HERE, {TAG.key: "sha256:1"}, []),
    ("another digest", [TAG], HERE, {TAG.key: "sha256:0"}, [Pulled(TAG, "h")]),
    ("tags of two accounts", [TAG, OTHER], HERE, {TAG.key: "sha256:1"}, [Pulled(OTHER, "h")]),
    ("region of the host", [AWAY, TAG], HERE, {}, [Pulled(TAG, "h")]),
    ("another node pool", [TAG._replace(node_pool="big")], HERE, {}, []),
    ("missing image", [TAG], NOTHING, {}, []),
    ("lost image", [TAG], NOTHING, {TAG.key: "sha256:1"}, [Pulled(TAG, "h", is_present=False)]),
    ("lost image of before", [TAG], NOTHING, {TAG.key: "sha256:0"}, []),
    ("withdrawn tag", [NEXT], HERE, {TAG.key: "sha256:1"}, []),
]


@pytest.mark.parametrize(
    ("tags", "present", "written", "expected"),
    [case[1:] for case in HOSTS],
    ids=[c[0] for c in HOSTS],
)
def test_news_of_a_host(
    tags: list[TagPlace],
    present: frozenset[str],
    written: dict[TagKey, str],
    expected: list[Pulled],
) -> None:
    log = {(key, "h"): digest for key, digest in written.items()}
    assert look_at_hosts(tags, {"h": present}, {"h": EU}, log) == expected


def test_news_of_several_hosts() -> None:
    images = {"h": HERE, "g": HERE}
    news = look_at_hosts([TAG], images, {"h": EU, "g": EU}, {(TAG.key, "h"): "sha256:1"})
    assert news == [Pulled(TAG, "g")]


REGIONS: list[tuple[str, WrittenState | None, bool, dict[str, str], list[TagNews]]] = [
    ("first host", None, True, {}, [Available(TAG)]),
    ("second host", AVAILABLE, True, {}, []),
    ("failure elsewhere", AVAILABLE, True, DENIED, []),
    ("not pulled yet", None, False, {}, []),
    ("first failure", None, False, DENIED, [Failed(TAG, "h", "denied")]),
    ("retry", FAILING, False, DENIED, []),
    ("another reason", FAILING, False, {"": "g", **DENIED}, [Failed(TAG, "g", "")]),
    ("success after failures", FAILING, True, {}, [Available(TAG)]),
    ("lost hosts", AVAILABLE, False, {}, []),
    ("failure after hosts were lost", AVAILABLE, False, DENIED, [Failed(TAG, "h", "denied")]),
    ("earlier image", AVAILABLE._replace(digest="sha256:0"), True, {}, [Available(TAG)]),
    ("earlier node pool", AVAILABLE._replace(node_pool="big"), True, {}, [Available(TAG)]),
    (
        "failures of an earlier image",
        FAILING._replace(digest="sha256:0"),
        False,
        DENIED,
        [Failed(TAG, "h", "denied")],
    ),
]


@pytest.mark.parametrize(
    ("written", "is_there", "failures", "expected"),
    [case[1:] for case in REGIONS],
    ids=[case[0] for case in REGIONS],
)
def test_news_of_a_region(
    written: WrittenState | None,
    is_there: bool,
    failures: dict[str, str],
    expected: list[TagNews],
) -> None:
    assert look_at_region(TAG, written, is_there=is_there, failures=failures) == expected
