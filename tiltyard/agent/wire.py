"""Conversions between the contract's values and agent.proto, for both programs."""

from collections.abc import Iterable, Iterator, Mapping
from sys import intern
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from tiltyard.agent.checked import items, text
from tiltyard.agent.traces import read_traceparent
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import (
    Capability,
    EndReason,
    ErrorReason,
    Identity,
    NetworkMode,
    Protocol,
    Resources,
    State,
)
from tiltyard.ends import Limit

M = TypeVar("M", bound=Message)

PORTION_BYTES = 1024 * 1024  # Of messages within one: a quarter of what either side receives
PORTION_ITEMS = 1000  # Messages within one: checking and reading them takes some milliseconds

STATES = {state: pb.State.Value(f"STATE_{state.name}") for state in State}
END_REASONS = {reason: pb.EndReason.Value(f"END_REASON_{reason.name}") for reason in EndReason}
ERROR_REASONS = {
    reason: pb.ErrorReason.Value(f"ERROR_REASON_{reason.name}") for reason in ErrorReason
}
LIMITS = {limit: pb.Limit.Value(f"LIMIT_{limit.name}") for limit in Limit}
PROTOCOLS = {protocol: pb.Protocol.Value(f"PROTOCOL_{protocol.name}") for protocol in Protocol}
NETWORK_MODES = {mode: pb.NetworkMode.Value(f"NETWORK_MODE_{mode.name}") for mode in NetworkMode}
CAPABILITIES = {each: pb.Capability.Value(f"CAPABILITY_{each.name}") for each in Capability}


def identity_to_proto(identity: Identity) -> pb.Identity:
    """Convert an identity."""
    return pb.Identity(
        account=identity.account,
        session_id=identity.session_id,
        application=identity.application,
        tag=identity.tag,
        location=identity.location,
        labels=identity.labels,
        external_id=identity.external_id,
        ticket=bytes.fromhex(identity.ticket),
        traceparent=identity.traceparent,
    )


def identity_from_proto(identity: pb.Identity) -> Identity:
    """Read an identity; strings that many sessions share are interned.

    Raises:
        OutOfBoundsError: A field is out of its bounds.
    """
    return Identity(
        account=intern(text(identity.account, "Identity.account")),
        session_id=text(identity.session_id, "Identity.session_id"),
        application=intern(text(identity.application, "Identity.application")),
        tag=intern(text(identity.tag, "Identity.tag")),
        location=intern(text(identity.location, "Identity.location")),
        labels=interned(items(identity.labels, "Identity.labels")),
        external_id=text(identity.external_id, "Identity.external_id"),
        ticket=text(identity.ticket, "Identity.ticket").hex(),
        traceparent=_traceparent(identity),
    )


def _traceparent(identity: pb.Identity) -> str:
    sent = text(identity.traceparent, "Identity.traceparent")
    return read_traceparent((sent,)) if sent else ""


def interned(texts: Mapping[str, str]) -> dict[str, str]:
    """Copy texts by name; names that many sessions share are interned."""
    return {intern(name): texts[name] for name in texts}


def resources_to_proto(resources: Resources) -> pb.Resources:
    """Convert resources."""
    return pb.Resources(
        nano_cpus=resources.nano_cpus, memory_bytes=resources.memory_bytes, gpus=resources.gpus
    )


def duration_to_proto(seconds: float | None) -> Duration | None:
    """Convert a duration."""
    if seconds is None:
        return None
    span = Duration()
    span.FromNanoseconds(round(seconds * 1e9))
    return span


def portions(messages: Iterable[M]) -> Iterator[list[M]]:
    """Split messages into lists of at most PORTION_ITEMS and PORTION_BYTES.

    A larger message is in a list of its own.
    """
    portion: list[M] = []
    size = 0
    for message in messages:
        cost = message.ByteSize() + 8  # with its tag and length
        is_full = len(portion) >= PORTION_ITEMS or size + cost > PORTION_BYTES
        if portion and is_full:
            yield portion
            portion = []
            size = 0
        portion.append(message)
        size += cost
    if portion:
        yield portion
