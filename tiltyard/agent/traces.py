"""Trace context of the W3C: the header `traceparent` of a request."""

import re
from collections.abc import Sequence

_LENGTH = 55  # Of version 00, with which every later version begins
_FIELDS = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1


def read_traceparent(values: Sequence[str]) -> str:
    """Return the traceparent of a request's headers in version 00; "" if it is not valid.

    A later version is passed on as version 00, with the flag `sampled` alone.
    """
    if len(values) != 1:
        return ""
    text = values[0].strip(" \t")
    fields = _FIELDS.fullmatch(text[:_LENGTH])
    if fields is None:
        return ""
    version, trace_id, parent_id, flags = fields.groups()
    is_known = version == "00"
    has_more = len(text) > _LENGTH
    is_malformed = has_more and (is_known or text[_LENGTH] != "-")
    if version == "ff" or is_malformed or not int(trace_id, 16) or not int(parent_id, 16):
        return ""
    if not is_known:
        flags = f"{int(flags, 16) & _SAMPLED:02x}"
    return f"00-{trace_id}-{parent_id}-{flags}"


def trace_id_of(traceparent: str) -> str:
    """Return the trace id of a traceparent of version 00, "" if there is none."""
    return traceparent[3:35]
