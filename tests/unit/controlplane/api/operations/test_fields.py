import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from controlplane.api.operations.fields import bounded_as_json

MOST = 200
Bounded = Mapping[str, str] | Sequence[str]
BOUNDED = TypeAdapter[Bounded](Annotated[dict[str, str] | list[str], bounded_as_json(MOST)])


def longest(kind: type, character: str) -> tuple[Bounded, Bounded]:
    """Return the longest value that is within the limit, and one that is a little longer."""
    texts = [character * number for number in range(MOST)]
    values = [{text: text} if kind is dict else [text, text] for text in texts]
    within = [value for value in values if len(json.dumps(value)) <= MOST]
    return within[-1], values[len(within)]


@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("character", ["a", '"', "é", "😀"])
def test_values_are_bounded_by_their_bytes_as_json(kind: type, character: str) -> None:
    within, beyond = longest(kind, character)
    assert BOUNDED.validate_python(within) == within
    with pytest.raises(ValidationError, match="at most 200 bytes as JSON"):
        BOUNDED.validate_python(beyond)


def test_many_short_texts_are_bounded() -> None:
    assert BOUNDED.validate_python([""] * 50) == [""] * 50
    with pytest.raises(ValidationError, match="at most 200 bytes as JSON"):
        BOUNDED.validate_python([""] * 51)
