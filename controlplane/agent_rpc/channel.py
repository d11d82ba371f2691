"""Connections to agents, as gRPC keeps them."""

from dataclasses import dataclass, field

import grpc

MAX_MESSAGE_BYTES = 4 * 1024 * 1024

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A connection whose other end is gone is found within 8 s.
    ("grpc.keepalive_time_ms", 4_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A host that is back is found within a second; an attempt to connect has 2 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel may get a closed one's connection
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """How we show ourselves to an agent and know it, as PEM texts; `host` is its DNS name."""

    authority: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    host: str


def open_channel(address: str, credentials: Credentials | None) -> grpc.aio.Channel:
    """Make a channel to an agent: by mutual TLS with credentials, else in clear; dials lazily."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    shown = grpc.ssl_channel_credentials(
        credentials.authority, credentials.key, credentials.certificate
    )
    # Its certificate is for this name, wherever the agent is reached.
    options = (*OPTIONS, ("grpc.ssl_target_name_override", credentials.host))
    # The scheme keeps a host from being one itself: `unix:7444` is a socket here otherwise.
    return grpc.aio.secure_channel(f"dns:///{address}", shown, options=options)
