import pytest

from agent.domain.errors import InvalidArgumentError
from agent.domain.references import LONGEST_REFERENCE, checked_reference
from tiltyard.images import LONGEST_REPOSITORY

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    "image", ["127.0.0.1:5000/x", "localhost/x", "GHCR.io/studio/game-server__v2/x.y", "r:1/x"]
)
def test_references_at_a_registry_are_accepted(image: str) -> None:
    assert checked_reference(f"{image}@{DIGEST}") == f"{image}@{DIGEST}"


def test_the_longest_reference_is_what_a_control_plane_can_enable() -> None:
    longest = f"{'a.' * 125}com:65535/{'g' * LONGEST_REPOSITORY}@{DIGEST}"
    assert checked_reference(longest) == longest
    assert len(longest) == 587
    assert LONGEST_REFERENCE == 587
    with pytest.raises(InvalidArgumentError, match="it is not host"):
        checked_reference(longest.replace("/", "/g"))


@pytest.mark.parametrize(
    ("registry", "cause"),
    [
        ("myregistry", "a user of Docker Hub: write myregistry:443"),
        ("Docker.io", "without it: write registry-1.docker.io"),
        ("127.1:5000", "a number and not an IPv4 address"),
        ("r:65536", r"not host\[:port\]"),
    ],
)
def test_rejects_ambiguous_registry(registry: str, cause: str) -> None:
    with pytest.raises(InvalidArgumentError, match=cause) as refused:
        checked_reference(f"{registry}/evil@{DIGEST}")
    assert f"'{registry}'" in str(refused.value)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "game:latest",
        f"r.example/game@{DIGEST[:-1]}",
        f"r.example/game@{DIGEST}\n",
        f"r.example/../game@{DIGEST}",
        f"r.example/Game@{DIGEST}",
        f"http://r.example/game@{DIGEST}",
        f"r.example/{'g' * 600}@{DIGEST}",
    ],
)
def test_only_references_by_digest_are_accepted(image: str) -> None:
    with pytest.raises(InvalidArgumentError):
        checked_reference(image)
