"""The bounds of every field of agent.proto; `checked` enforces them where a message is read.

Either side may be broken or compromised: a message beyond the bounds is not believed. They are
well above what an honest peer sends, so that a newer one may send somewhat more. Numbers are
bounded to what the database and sums over many hosts can take; texts and lists to what many
sessions may cost in memory.
"""

from typing import NamedTuple

from tiltyard.contract import MAX_PIDS

MAX_NANO_CPUS = 2**46
MAX_MEMORY_BYTES = 2**50
"""70,000 cores and a PiB: a hostile host must not overflow sums in the database."""
MAX_REVISION = 2**62
"""Half of the database's integer range: an order can exceed any reported revision."""
MAX_DETAIL = 2048  # Characters of what went wrong with a session
MAX_SENTENCE = 4096  # Characters of a warning or an error
MAX_IMAGE = 1024  # Characters of an image name: Docker's longest has a few hundred
MAX_LOG = 128 * 1024  # Bytes in a report: even at 6 bytes each in JSON they stay below 1 MiB
MAX_SECONDS = 253_402_300_799  # The end of the year 9999, since 1970

_ID = 64  # Characters of a UUID, with room
_NAME = 256
_HOST = 255  # RFC 1035
_VERSION = 256
_FILE = 64 * 1024  # Bytes of certificates and keys
_COUNT = 10**6  # Of sessions, images, slots that a number reports
_MANY = 100_000  # Images that a host lists for its own operator
_IMAGES = 10_000  # Images of one message: honest ones have at most 2000
_PORTION = (
    5000  # Sessions or claims of one message: five times PORTION_ITEMS, which honest ones have
)
_BYTES = 2**60


class Bound(NamedTuple):
    """The bounds of a field: of a number its values, of a text or bytes the length.

    `most_items` is the maximum number of values of a list or map. Points in time and spans have
    the same bounds everywhere, and flags and enums none.
    """

    least: int = 0
    most: int = 0
    most_items: int = 1


def _text(most: int, *, items: int = 1) -> Bound:
    return Bound(most=most, most_items=items)


def _number(most: int, *, least: int = 0) -> Bound:
    return Bound(least, most)


def _items(most: int) -> Bound:
    return Bound(most_items=most)


_PORT = _number(65_535)
_PORTS = _number(65_536)
_FORMAT = _number(2**31)
_SEQUENCE = _number(MAX_REVISION)
_INT32 = _number(2**31 - 1, least=-(2**31))

MOST_BYTES = {
    "Claimed": 256 * 1024,
    "Identity": 128 * 1024,
    "Session": 512 * 1024,
    "SessionSpec": 1024 * 1024,
}
"""Bytes of a whole message, which also bound the names and values of its maps."""

BOUNDS: dict[str, Bound] = {
    "BoundPort.port": _PORT,
    "Claim.internal_id": _text(_ID),
    "Claim.known_incarnation": _text(_ID),
    "Claim.known_sequence": _SEQUENCE,
    "Claim.number": _SEQUENCE,
    "Claim.request_id": _text(_ID),
    "Claim.request_json": _text(1024 * 1024),
    "Claimed.injected_env": _items(10_000),
    "Claimed.sequence": _SEQUENCE,
    "ClaimResult.error": _text(MAX_SENTENCE),
    "ClaimResult.number": _SEQUENCE,
    "ClaimSessionsRequest.claims": _items(_PORTION),
    "ClaimSessionsResponse.incarnation": _text(_ID),
    "ClaimSessionsResponse.results": _items(_PORTION),
    "FailedRun.exit_code": _INT32,
    "FailedRun.limits_met": _items(100),
    "FetchArtifactRequest.internal_id": _text(_ID),
    "FetchArtifactRequest.path": _text(4096),
    "FetchArtifactResponse.data": _text(256 * 1024),
    "GetBindingsRequest.internal_id": _text(_ID),
    "GetBindingsResponse.others": _items(100),
    "GetBindingsResponse.unbound": _items(1000),
    "GetHostResponse.incarnation": _text(_ID),
    "GetHostResponse.sequence": _SEQUENCE,
    "GetReportRequest.internal_id": _text(_ID),
    "GetReportResponse.log": _text(MAX_LOG),
    "Host.agent_id": _text(_NAME),
    "Host.drain_revision": _number(MAX_REVISION),
    "Host.engine_version": _text(_VERSION),
    "Host.format": _FORMAT,
    "Host.free_image_bytes": _number(_BYTES),
    "Host.free_sessions": _number(_COUNT),
    "Host.free_tcp_ports": _PORTS,
    "Host.free_udp_ports": _PORTS,
    "Host.image_count": _number(_COUNT),
    "Host.kernel_version": _text(_VERSION),
    "Host.latency_addresses": _text(_HOST, items=64),
    "Host.platform": _text(_VERSION),
    "Host.port_range_first": _PORT,
    "Host.port_range_last": _PORT,
    "Host.prepared": _items(5000),
    "Host.public_address": _text(_HOST),
    "Host.runc_version": _text(_VERSION),
    "Host.start_slots": _number(_COUNT),
    "Host.starting": _text(_ID, items=20_000),
    "Host.version": _text(_VERSION),
    "Host.warm_pools": _items(10_000),
    "Host.warnings": _text(MAX_SENTENCE, items=1000),
    "Identity.account": _text(_NAME),
    "Identity.application": _text(_NAME),
    "Identity.external_id": _text(_NAME),
    "Identity.labels": _items(1000),
    "Identity.location": _text(_NAME),
    "Identity.session_id": _text(_NAME),
    "Identity.tag": _text(_NAME),
    "Identity.ticket": _text(_NAME),
    "Identity.traceparent": _text(_ID),
    "Image.image": _text(MAX_IMAGE),
    "Image.size_bytes": _number(_BYTES),
    "ImageBatch.images": _text(MAX_IMAGE, items=_IMAGES),
    "ImageBatch.sizes": Bound(most=_BYTES, most_items=_IMAGES),
    "ListImagesResponse.images": _items(_MANY),
    "ListImagesResponse.pulls": _items(_MANY),
    "ListSessionsRequest.page_size": _INT32,
    "ListSessionsRequest.page_token": _text(_NAME),
    "ListSessionsResponse.incarnation": _text(_ID),
    "ListSessionsResponse.next_page_token": _text(_NAME),
    "ListSessionsResponse.sessions": _items(_PORTION),
    "Port.container_port": _PORT,
    "Port.host_port": _PORT,
    "PortRequest.container_port": _number(2**32 - 1),  # refused by name where it is read
    "PortRequest.pinned_host_port": _number(2**32 - 1),
    "PullImageRequest.account": _text(_NAME),
    "PullImageRequest.expected_bytes": _number(_BYTES),
    "PullImageRequest.image": _text(MAX_IMAGE),
    "PullImageResponse.downloading": _number(_COUNT),
    "PullImageResponse.layers": _number(_COUNT),
    "PullImageResponse.layers_done": _number(_COUNT),
    "PullImageResponse.received_bytes": _number(_BYTES),
    "PreparedShape.error": _text(MAX_SENTENCE),
    "PreparedShape.image": _text(MAX_IMAGE),
    "PreparedShape.kept": _number(_COUNT),
    "PreparedShape.key": _text(_ID),
    "Pull.image": _text(MAX_IMAGE),
    "RegistryCredentials.password": _text(64 * 1024),
    "RegistryCredentials.username": _text(_NAME),
    "RemoveImageRequest.image": _text(MAX_IMAGE),
    "RenewCertificateRequest.authorities": _text(_FILE),
    "RenewCertificateRequest.certificate": _text(_FILE),
    "RenewCertificateResponse.signing_request": _text(_FILE),
    "Report.detail": _text(MAX_DETAIL),
    "Report.exit_code": _INT32,
    "Report.failed_runs": _items(1000),
    "Report.format": _FORMAT,
    "Report.internal_id": _text(_ID),
    "Report.limits_met": _items(100),
    "Report.peak_memory_bytes": _number(_BYTES),
    "Report.restart_count": _number(2**32 - 1),
    "Report.signal": _number(255),
    "Report.timeline": _items(1000),
    "Resources.gpus": _number(4096),
    "Resources.memory_bytes": _number(MAX_MEMORY_BYTES),
    "Resources.nano_cpus": _number(MAX_NANO_CPUS),
    "Session.detail": _text(MAX_DETAIL),
    "Session.exit_code": _INT32,
    "Session.format": _FORMAT,
    "Session.host": _text(_HOST),
    "Session.image": _text(MAX_IMAGE),
    "Session.injected_env": _items(10_000),
    "Session.internal_id": _text(_ID),
    "Session.pid": _INT32,
    "Session.ports": _items(1000),
    "Session.restart_count": _number(2**32 - 1),
    "Session.sequence": _SEQUENCE,
    "Session.warm_pool": _text(_ID),
    "Session.warm_pool_revision": _number(MAX_REVISION),
    "SessionBatch.sessions": _items(_PORTION),
    "SessionSpec.args": _text(512 * 1024, items=1000),
    "SessionSpec.capabilities": _items(100),
    "SessionSpec.disk_bytes": _number(_BYTES),
    "SessionSpec.env": _items(2000),
    "SessionSpec.format": _FORMAT,
    "SessionSpec.image": _text(MAX_IMAGE),
    "SessionSpec.pids": _number(MAX_PIDS),
    "SessionSpec.ports": _items(1000),
    "SessionSpec.shm_bytes": _number(_BYTES),
    "SessionSpec.stop_signal": _text(_ID),
    "SetDrainRequest.revision": _number(MAX_REVISION),
    "SetDrainResponse.sessions": _number(_COUNT),
    "SetShapesRequest.shapes": _items(1000),
    "SetWarmPoolRequest.claim_signal": _text(_ID),
    "SetWarmPoolRequest.pool_id": _text(_ID),
    "SetWarmPoolRequest.revision": _number(MAX_REVISION),
    "SetWarmPoolRequest.size": _number(_COUNT),
    "StartSessionRequest.internal_id": _text(_ID),
    "StartSessionResponse.incarnation": _text(_ID),
    "StopResult.killed": _text(_ID * 100, items=100),
    "StopResult.signal": _text(_ID),
    "StopSessionRequest.internal_id": _text(_ID),
    "StopSessionResponse.incarnation": _text(_ID),
    "StreamLogsRequest.internal_id": _text(_ID),
    "StreamLogsRequest.offset": _number(_BYTES),
    "StreamLogsResponse.data": _text(256 * 1024),
    "StreamLogsResponse.offset": _number(_BYTES),
    "UnboundPort.container_port": _PORT,
    "UnboundPort.own_port": _PORT,
    "WarmPool.pool_id": _text(_ID),
    "WarmPool.revision": _number(MAX_REVISION),
    "WarmPool.size": _number(_COUNT),
    "WatchRequest.acked_sequence": _SEQUENCE,
    "WatchRequest.incarnation": _text(_ID),
    "WatchResponse.incarnation": _text(_ID),
    "WatchResponse.sequence": _SEQUENCE,
}
"""The rule of each field, by message and field. A test fails for a field without a rule."""
