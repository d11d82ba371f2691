"""The `Accept` header of RFC 9110, section 12.5.1. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_RANGE = re.compile(r"([\w!#$&^.+*-]+)/([\w!#$&^.+*-]+)", re.ASCII)
_QUALITY = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.ASCII)


class _Range(NamedTuple):
    """A media range; `*` is any type or subtype."""

    type: str
    subtype: str
    quality: float

    @property
    def specificity(self) -> int:
        return (self.type != "*") + (self.subtype != "*")

    def covers(self, media_type: str) -> bool:
        type_, _, subtype = media_type.partition("/")
        return self.type in {"*", type_} and self.subtype in {"*", subtype}


def preferred(headers: Iterable[str], offers: Sequence[str]) -> str:
    """Return the media type among `offers` that a client likes best.

    `headers`: the values of all `Accept` headers. Of types with the same quality, the one that the
    client names more precisely counts, then the first offer. It is also the first offer if the
    client accepts none: a response in another type helps more than none.
    """
    ranges = list(_ranges(headers))
    best = offers[0]
    best_rank = (0.0, 0)
    for offer in offers:
        rank = _rank(offer, ranges)
        if rank[0] > 0 and rank > best_rank:
            best = offer
            best_rank = rank
    return best


def _rank(offer: str, ranges: Sequence[_Range]) -> tuple[float, int]:
    """Return the quality of an offer and the specificity of the range that decides it."""
    covering = [range_ for range_ in ranges if range_.covers(offer)]
    if not covering:
        return 0.0, 0
    specificity = max(range_.specificity for range_ in covering)
    return max(each.quality for each in covering if each.specificity == specificity), specificity


def _ranges(headers: Iterable[str]) -> Iterator[_Range]:
    for header in headers:
        for text in header.split(","):
            media, *parameters = (part.strip().lower() for part in text.split(";"))
            found = _RANGE.fullmatch(media)
            if found is not None:
                yield _Range(found[1], found[2], _quality(parameters))


def _quality(parameters: Iterable[str]) -> float:
    """Return the quality of a media range; 1 if it is absent or malformed."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q" and _QUALITY.fullmatch(value.strip()):
            return float(value)
    return 1.0
