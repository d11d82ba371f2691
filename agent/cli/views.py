"""Formats messages of agent.proto as lines of text. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from agent.client.agent_client import Message, is_live, is_standby
from tiltyard.runtime.tables import cores, printable, sheet, size, table

Row = dict[str, Any]


def host_lines(answer: Message, live: Iterable[Message]) -> list[str]:
    """Show a host: resources, warm pools, prepared containers and warnings."""
    host = answer["host"]
    live = list(live)
    total = host["capacity"]
    taken = host["reserved"]
    standbys = [session for session in live if is_standby(session)]
    return sheet(
        (
            ("agent", f"{host['agent_id']}, version {host['version']}"),
            ("state", ", ".join(_state_of(answer))),
            ("address", host["public_address"]),
            ("engine", _engine(host)),
            (
                "sessions",
                f"{len(live) - len(standbys)} live, {host['free_sessions']} more by max_sessions",
            ),
            *(("warm pool", _pool(pool, standbys)) for pool in host["warm_pools"] if pool["size"]),
            *(("prepared", _prepared(shape)) for shape in host["prepared"]),
            ("cores", _of(taken, total, "nano_cpus", cores)),
            ("memory", _of(taken, total, "memory_bytes", size)),
            ("gpus", _of(taken, total, "gpus", str)),
            ("ports", _free(host)),
            ("images", str(host["image_count"])),
            *(("warning", warning) for warning in host["warnings"]),
        )
    )


def session_lines(sessions: Iterable[Message]) -> list[str]:
    """Show sessions, one per line; values chosen by clients are last, since they may be long."""
    return table(
        (
            "INTERNAL ID",
            "STATE",
            "CREATED",
            "EXPIRES",
            "PORTS",
            "APPLICATION",
            "TAG",
            "ACCOUNT",
            "SESSION",
        ),
        (
            (
                session["internal_id"],
                _state_and_end(session),
                moment(session, "create_time"),
                moment(session, "expire_time"),
                ", ".join(map(_port, session["ports"])),
                session["identity"]["application"],
                session["identity"]["tag"],
                session["identity"]["account"],
                session["identity"]["session_id"],
            )
            for session in sessions
        ),
    )


def message_lines(message: Message) -> list[str]:
    """Show all fields of a message."""
    return sheet(_fields("", message))


def images(answer: Message, live: Iterable[Message]) -> list[Row]:
    """List images with live sessions, size and pull progress, also removed ones still in use."""
    used = Counter(session["image"] for session in live)
    here = {image["image"]: image.get("size_bytes") for image in answer["images"]}
    pulls = {pull["image"]: pull["progress"] for pull in answer["pulls"]}
    return [
        {
            "image": image,
            "live_sessions": used[image],
            "here": image in here,
            "size_bytes": here.get(image),
            "pull": pulls.get(image),
        }
        for image in sorted({*here, *pulls, *used})
    ]


def image_lines(rows: Iterable[Row]) -> list[str]:
    """Show the images of a host."""
    return table(
        ("LIVE SESSIONS", "SIZE", "STATE", "IMAGE"),
        (
            (
                str(row["live_sessions"]),
                "" if row["size_bytes"] is None else size(int(row["size_bytes"])),
                _image_state(row),
                row["image"],
            )
            for row in rows
        ),
    )


def _image_state(row: Row) -> str:
    if row["here"]:
        return "here"
    if row["pull"] is None:
        return "removed"
    layers = f"{row['pull']['layers_done']} of {row['pull']['layers']} layers"
    return f"on its way: {layers}, {size(int(row['pull']['received_bytes']))} received"


def _state_of(answer: Message) -> Iterator[str]:
    yield "serving" if answer["reconciled"] else "reconciling its records with the engine"
    if answer["host"]["draining"]:
        end = moment(answer["host"], "drain_time")
        yield f"draining until {end}" if end else "draining"


def _pool(pool: Message, standbys: Iterable[Message]) -> str:
    own = [each for each in standbys if each["warm_pool"] == pool["pool_id"]]
    ready = sum("ready_time" in each for each in own)
    return f"{pool['pool_id']}: {ready} of {pool['size']} ready, {len(own)} live"


def _prepared(shape: Message) -> str:
    state = f"{shape['kept']} waiting for {shape['image']}"
    return f"{state}: {shape['error']}" if shape["error"] else state


def _engine(host: Message) -> str:
    version = host["engine_version"] or "never reached"
    return version if host["engine_available"] else f"{version}, does not answer"


def _of(taken: Message, total: Message, key: str, shown: Any) -> str:
    return f"{shown(int(taken[key]))} of {shown(int(total[key]))} reserved"


def _free(host: Message) -> str:
    first = host["port_range_first"]
    last = host["port_range_last"]
    tcp = host["free_tcp_ports"]
    udp = host["free_udp_ports"]
    return f"{tcp} TCP and {udp} UDP free of {last - first + 1} each in {first}-{last}"


def _state_and_end(session: Message) -> str:
    state = _word(session["state"])
    if session.get("warm_pool"):
        state = "standby in doubt" if session["in_doubt"] else f"standby, {state}"
    if is_live(session):
        is_waited_for = state.endswith("running") and "ready_time" not in session
        return f"{state}, not ready" if is_waited_for else state
    code = session.get("exit_code")
    return f"{state}: {_word(session['end_reason'])}" + ("" if code is None else f", code {code}")


def moment(message: Message, key: str) -> str:
    """Show a time of a message; empty if there is none."""
    text = message.get(key)
    return "" if text is None else f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%SZ}"


def _port(port: Message) -> str:
    tls = ", TLS" if port["tls"] else ""
    return f"{port['host_port']}->{port['container_port']}/{_word(port['protocol'])}{tls}"


def _fields(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _fields(f"{name}.{key}" if name else key, each)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _fields(f"{name}[{number}]", each)
    else:
        yield printable(name), _word(str(value))


def _word(constant: str) -> str:
    """Shorten enum values of agent.proto: END_REASON_OOM to `oom`."""
    prefixes = ("STATE_", "END_REASON_", "PROTOCOL_")
    prefix = next((prefix for prefix in prefixes if constant.startswith(prefix)), None)
    return constant if prefix is None else constant.removeprefix(prefix).lower()
