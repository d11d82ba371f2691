"""Hostile strings as the source of images, in every field that names one.

A caller's string is looked up in the registry that an operator configured, or refused. A host that
an operator writes is connected to if it is public or was written as an address, or refused.
"""

import asyncio
import json
import subprocess
import sys

import pytest

from tests.controlplane.hostile_strings import (
    NO_TEXT,
    OPERATORS_CHOICE,
    REBOUND,
    STRINGS,
    STRIPPED,
)
from tests.controlplane.source_canaries import Guarded, Sources, may_be_set
from tests.support.controlplane.system import Answer, assert_error
from tests.support.harness import ROOT

pytestmark = pytest.mark.system(kind=Guarded, agents=0, application={"tag": None})


def refused(answer: Answer, text: str, field: str, status: int = 422) -> None:
    """Check that a string is refused, in this field unless it cannot stand in a body at all."""
    try:
        if NO_TEXT & set(text):
            assert_error(answer, 422, "body")
        else:
            fields = [field] if status == 422 else []
            assert_error(answer, status, *fields)
    except AssertionError as error:
        raise AssertionError(f"{text[:100]!r}: {error}") from None


async def test_a_registry_is_one_that_the_operator_configured(system: Guarded) -> None:
    sources = Sources(system)
    for text in STRINGS:
        post, put = await sources.edit(registry=text)
        refused(post, text, "registry")
        refused(put, text, "registry", 404 if 0 < len(text) <= 256 else 422)
    assert system.registry.asked == []


async def test_a_repository_is_in_that_registry(system: Guarded) -> None:
    sources = Sources(system)
    for text, letters in STRINGS.items():
        system.registry.asked.clear()
        post, put = await sources.edit(repository=text)
        if "r" not in letters:
            refused(post, text, "repository")
            refused(put, text, "repository")
            continue
        assert post.status == 201, text
        assert put.status == 204, text
        assert_error(await sources.enable("v1"), 404)
        assert system.registry.asked == [f"/v2/{STRIPPED.get(text, text)}/manifests/v1"]


async def test_a_tag_is_in_that_repository(system: Guarded) -> None:
    sources = Sources(system)
    for text, letters in STRINGS.items():
        system.registry.asked.clear()
        answer = await sources.enable(text)
        if "t" not in letters:
            refused(answer, text, "tag")
            assert system.registry.asked == []
            continue
        assert_error(answer, 404)
        assert system.registry.asked == [f"/v2/studio/game/manifests/{text}"]


async def test_an_operator_writes_a_host_and_a_port(system: Guarded) -> None:
    sources = Sources(system)
    for text, letters in STRINGS.items():
        for field, value in (("address", text), ("aliases[0]", [text]), ("authHosts[0]", [text])):
            answer = await sources.configure(**{field.removesuffix("[0]"): value})
            if "a" in letters:
                assert answer.status == 204, (text, answer.text)
            else:
                refused(answer, text, field)
        for keys in ({"address": text}, {"aliases": (text,)}, {"auth_hosts": (text,)}):
            assert may_be_set(**keys) == ("a" in letters), text
    assert system.registry.asked == []


@pytest.mark.root
async def test_only_what_the_operator_chose_is_connected_to() -> None:
    program = [sys.executable, "-W", "error", "-m", "tests.controlplane.source_canaries"]
    done = await asyncio.to_thread(
        subprocess.run,
        ["unshare", "--net", *program],
        cwd=ROOT,
        capture_output=True,
        timeout=250,  # It commits some hundred times
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    report = json.loads(done.stdout)
    assert report["control"] == {
        **{name: [["1.1.1.1", 443]] for name in ("public.example", REBOUND)},
        **{address: [[address, 5000]] for address in ("10.0.0.1", "169.254.169.254", "127.0.0.1")},
        "fd00:ec2::254": [["fd00:ec2::254", 5000]],
    }
    assert report["callers"] == {}
    assert report["operators"] == {text: [list(where)] for text, where in OPERATORS_CHOICE.items()}
