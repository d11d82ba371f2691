"""Responses of the agent as tables. Pure: messages of agent.proto in, lines out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from agent.client.session_choice import Message, is_live, is_standby
from tiltyard.runtime.tables import cores, sheet, size, span, table

Row = dict[str, Any]


def host_lines(answer: Message, live: Iterable[Message]) -> list[str]:
    """Show a host: allocatable and reserved resources, and warnings."""
    host, live = answer["host"], list(live)
    total, taken = host["capacity"], host["reserved"]
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
            ("cores", _of(taken, total, "nano_cpus", cores)),
            ("memory", _of(taken, total, "memory_bytes", size)),
            ("gpus", _of(taken, total, "gpus", str)),
            ("ports", _free(host)),
            ("images", str(host["image_count"])),
            *(("warning", warning) for warning in host["warnings"]),
        )
    )


def session_lines(sessions: Iterable[Message]) -> list[str]:
    """Show sessions, one per line; values chosen by callers come last, since they may be long."""
    return table(
        ("INTERNAL ID", "STATE", "CREATED", "PORTS", "APPLICATION", "TAG", "ACCOUNT", "SESSION"),
        (
            (
                session["internal_id"],
                _state_and_end(session),
                _moment(session, "create_time"),
                ", ".join(map(_port, session["ports"])),
                session["identity"]["application"],
                session["identity"]["tag"],
                session["identity"]["account"],
                session["identity"]["session_id"],
            )
            for session in sessions
        ),
    )


def one_session_lines(session: Message) -> list[str]:
    """Show everything about a session."""
    identity, held = session["identity"], session["reservation"]
    return sheet(
        (
            ("internal id", session["internal_id"]),
            ("account", identity["account"]),
            ("session", identity["session_id"]),
            ("application", identity["application"]),
            ("tag", identity["tag"]),
            ("location", identity["location"]),
            ("external id", identity["external_id"]),
            *_pairs("label", identity["labels"]),
            ("image", session["image"]),
            ("state", _state_and_end(session)),
            ("detail", session["detail"]),
            ("process", str(session["pid"] or "")),
            ("restarts", str(session["restart_count"])),
            ("warm pool", session["warm_pool"]),
            ("host", session["host"]),
            *(("port", _port(port)) for port in session["ports"]),
            ("cores", cores(int(held["nano_cpus"]))),
            ("memory", size(int(held["memory_bytes"]))),
            ("gpus", str(held["gpus"])),
            ("created", _moment(session, "create_time")),
            ("started", _moment(session, "start_time")),
            ("ready", _moment(session, "ready_time")),
            ("expires", _moment(session, "expire_time")),
            ("ended", _moment(session, "end_time")),
            ("log", "sealed" if session["log_sealed"] else "not sealed"),
            *_pairs("env", session["injected_env"]),
        )
    )


def report_lines(report: Message) -> list[str]:
    """Show how a session ended."""
    peak = report.get("peak_memory_bytes")
    return sheet(
        (
            ("internal id", report["internal_id"]),
            ("state", _state_and_end(report)),
            ("detail", report["detail"]),
            ("signal", str(report.get("signal", ""))),
            ("out of memory", "yes" if report["oom_killed"] else "no"),
            ("processor time", report.get("cpu_time", "")),
            ("most memory", "" if peak is None else size(int(peak))),
            ("restarts", str(report["restart_count"])),
            *(("failed run", _failed_run(run)) for run in report["failed_runs"]),
            *((word(each["state"]), _moment(each, "time")) for each in report["timeline"]),
        )
    )


def held_ports(live: Iterable[Message]) -> list[Row]:
    """List the owners of host ports, by number."""
    return sorted(
        (
            {
                "host_port": port["host_port"],
                "protocol": word(port["protocol"]),
                "container_port": port["container_port"],
                "tls": port["tls"],
                **_whose(session),
            }
            for session in live
            for port in session["ports"]
        ),
        key=lambda row: (row["host_port"], row["protocol"]),
    )


def port_lines(host: Message, held: Sequence[Row]) -> list[str]:
    """List host ports in use, and the number of free ones."""
    return [
        *table(
            ("HOST PORT", "PROTOCOL", "CONTAINER PORT", "INTERNAL ID", "ACCOUNT", "SESSION"),
            (
                (
                    str(row["host_port"]),
                    row["protocol"],
                    f"{row['container_port']}{' (TLS)' if row['tls'] else ''}",
                    row["internal_id"],
                    row["account"],
                    row["session_id"],
                )
                for row in held
            ),
        ),
        _free(host),
    ]


def deadlines(live: Iterable[Message], host: Message, now: float) -> list[Row]:
    """List deadlines, soonest first; `now` in Unix time.

    The end of the host's drain is that of no session: its names are empty.
    """
    due = [(each["expire_time"], _whose(each)) for each in live if "expire_time" in each]
    if "drain_time" in host:
        due.append((host["drain_time"], {"internal_id": "", "account": "", "session_id": ""}))
    rows = (
        {
            "expire_time": text,
            "seconds_left": round(datetime.fromisoformat(text).timestamp() - now, 3),
            **whose,
        }
        for text, whose in due
    )
    return sorted(rows, key=lambda row: (row["seconds_left"], row["internal_id"]))


def deadline_lines(rows: Iterable[Row]) -> list[str]:
    """Show deadlines."""
    return table(
        ("DUE", "IN", "INTERNAL ID", "ACCOUNT", "SESSION"),
        (
            (
                _moment(row, "expire_time"),
                span(row["seconds_left"]),
                row["internal_id"] or "the end of the drain",
                row["account"],
                row["session_id"],
            )
            for row in rows
        ),
    )


def images(answer: Message, live: Iterable[Message]) -> list[Row]:
    """List images with live sessions, size, and progress of the pull.

    Images that were removed while sessions use them are listed as well.
    """
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


def pull_line(progress: Message) -> str:
    """Show the progress of a pull."""
    if progress["done"]:
        return "done"
    if progress["waiting"]:
        return "waiting: other pulls are in progress"
    layers = f"{progress['layers_done']} of {progress['layers']} layers"
    return f"{layers}, {size(int(progress['received_bytes']))} received"


def word(constant: str) -> str:
    """Show a value of an enum of agent.proto: END_REASON_OOM is `oom`."""
    prefixes = ("STATE_", "END_REASON_", "PROTOCOL_", "NETWORK_MODE_")
    prefix = next((prefix for prefix in prefixes if constant.startswith(prefix)), "")
    return constant.removeprefix(prefix).lower()


def _image_state(row: Row) -> str:
    if row["here"]:
        return "here"
    return "removed" if row["pull"] is None else f"on its way: {pull_line(row['pull'])}"


def _state_of(answer: Message) -> Iterator[str]:
    yield "serving" if answer["reconciled"] else "reconciling its records with the engine"
    if answer["host"]["draining"]:
        yield "draining"


def _pool(pool: Message, standbys: Iterable[Message]) -> str:
    own = [each for each in standbys if each["warm_pool"] == pool["pool_id"]]
    ready = sum("ready_time" in each for each in own)
    return f"{pool['pool_id']}: {ready} of {pool['size']} ready, {len(own)} live"


def _engine(host: Message) -> str:
    version = host["engine_version"] or "never reached"
    return version if host["engine_available"] else f"{version}, does not answer"


def _of(taken: Message, total: Message, key: str, shown: Any) -> str:
    return f"{shown(int(taken[key]))} of {shown(int(total[key]))} reserved"


def _free(host: Message) -> str:
    first, last = host["port_range_first"], host["port_range_last"]
    tcp, udp = host["free_tcp_ports"], host["free_udp_ports"]
    return f"{tcp} TCP and {udp} UDP free of {last - first + 1} each in {first}-{last}"


def _state_and_end(session: Message) -> str:
    state = word(session["state"])
    if session.get("warm_pool"):
        state = "standby in doubt" if session["in_doubt"] else f"standby, {state}"
    if is_live(session):
        is_waited_for = state.endswith("running") and "ready_time" not in session
        return f"{state}, not ready" if is_waited_for else state
    code = session.get("exit_code")
    return f"{state}: {word(session['end_reason'])}" + ("" if code is None else f", code {code}")


def _moment(message: Message, key: str) -> str:
    text = message.get(key)
    return "" if text is None else f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%SZ}"


def _failed_run(run: Message) -> str:
    code = run.get("exit_code", "unknown")
    oom = ", out of memory" if run["oom_killed"] else ""
    return f"{_moment(run, 'start_time')} to {_moment(run, 'end_time')}, code {code}{oom}"


def _port(port: Message) -> str:
    tls = ", TLS" if port["tls"] else ""
    return f"{port['host_port']}->{port['container_port']}/{word(port['protocol'])}{tls}"


def _pairs(name: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, f"{key}={value}") for key, value in sorted(values.items()))


def _whose(session: Message) -> Row:
    identity = session["identity"]
    return {
        "internal_id": session["internal_id"],
        "account": identity["account"],
        "session_id": identity["session_id"],
    }
