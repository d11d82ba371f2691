"""Store a control plane's state: `python -m tests.controlplane.storing formats/<schema>`.

A control plane serves a scripted series of calls. Stored are its database as SQL, its keys, and
the tokens. The state of a released schema is never rewritten.
"""

import asyncio
import json
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.controlplane.enrolling import Enrolling
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import Answer, eventually_equals
from tiltyard.agent.wire import identity_from_proto
from tiltyard.runtime.clock import to_ms

DATABASE = "database.sql"
KEYS = ("authority.pem", "registry.key", "ticket.key")
NETWORKS = ("127.0.0.0/8",)
KNOWN = "known.json"
"""What is not in the state directory: tokens as callers have them, a host's tickets."""
PASSWORD = "swordfish-7"
LOGIN = {"address": "r.example", "username": "robot", "password": PASSWORD, "private": True}


async def store(folder: Path) -> None:
    """Run the script and store the state in a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        system = Enrolling(
            Path(scratch), regions=("local", "elsewhere"), webhook_networks=NETWORKS
        )
        system.agents = [FakeAgent(Path(scratch), "a0")]
        async with system:
            known = await _play(system)
            await system.stop_serving()
        state = system.config.state_dir
        for name in KEYS:
            shutil.copy(state / name, folder / name)
        with closing(sqlite3.connect(system.config.database)) as database:
            [(schema,)] = database.execute("PRAGMA user_version").fetchall()
            dump = [*database.iterdump(), f"PRAGMA user_version={schema};", ""]
            (folder / DATABASE).write_text("\n".join(dump), "utf-8")
        (folder / KNOWN).write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")


async def _play(system: Enrolling) -> dict[str, Any]:
    async def operator(method: str, path: str, **more: Any) -> Answer:
        answer = await system.operate(method, path, **more)
        assert answer.status < 300, answer.text
        return answer

    await operator("PUT", "/region/third")
    await operator("PUT", "/node-pool/spread", json={"strategy": "spread"})
    await operator("PUT", "/registry/private", json=LOGIN)
    made = await operator("POST", "/account", json={"name": "carol", "quota": {"sessions": 9}})
    await operator("POST", "/account", json={"name": "dora"})
    await operator("PUT", "/account/alice", json={"quota": {"sessions": 50, "cpu": 40.5}})
    await operator("DELETE", "/account/dora")
    tokens = {**system.tokens, "operator": system.operator_token, "carol": made.json["token"]}

    await system.make_application(regions=["local", "elsewhere"])
    await system.enable("v2")

    child = await system.make_token(name="reader", scopes=["session:read"], expires_after="8760h")
    revoked = await system.make_token(name="gone", scopes=["session:read"])
    await operator("DELETE", f"/token/{revoked.split('_')[1]}")
    tokens |= {"child": child, "revoked": revoked}

    await _start_sessions(system)
    for name in ("host-1", "host-2", "host-3"):
        assert (await system.enrol(await system.token(), name=name)).status == 201
    await operator("POST", "/agent/host-2/revoke")
    await operator("DELETE", "/agent/host-3")
    await system.token()
    await _fail_deliveries(system)
    # After the sessions, which would claim its standbys.
    pool = {"size": 3, "enabled": True, "env": {"MODE": "é"}, "args": ["-x"], "labels": {"a": "b"}}
    assert (await system.call("PUT", "/warm-pool/game/local", json=pool)).status == 204
    started = system.agent.started[0]
    identity = started.spec.identity
    return {
        "now_ms": to_ms(system.control_plane.clock.time()),
        "tokens": tokens,
        "ticket": {
            "agent": "a0",
            "internal_id": started.internal_id,
            "identity": asdict(identity_from_proto(identity)),
            "nano_cpus": started.spec.reservation.nano_cpus,
            "memory_bytes": started.spec.reservation.memory_bytes,
        },
    }


async def _fail_deliveries(system: Enrolling) -> None:
    """Leave a webhook whose endpoint has failed."""
    body = {"url": "https://127.0.0.1:9/", "kinds": ["token.*"], "description": "é"}
    (await system.call("POST", "/webhook", json=body)).expect(201)
    await system.make_token(name="delivered", scopes=["session:read"])
    sql = "SELECT count(*) FROM webhook_retry"
    await eventually_equals(lambda: system.rows(sql), [(1,)])


async def _start_sessions(system: Enrolling) -> None:
    rich = {"labels": {"mode": "duel"}, "external_id": "x-1", "env": {"A": "b"}, "ttl": "90m"}
    for session_id in ("match ü", "stopped", "fails"):
        assert (await system.start(id=session_id, **rich)).status == 201
    assert (await system.join("ann", "bert", session="match ü")).status == 200
    assert (await system.call("DELETE", "/session/stopped")).status == 204
    system.agent.end(system.agent.live[-1].internal_id)
    await system.becomes("fails", "exited")
    # An attempt of unknown outcome, on a host that does not answer any more.
    system.agent.before_start = system.agent.hang
    system.agent.before_stop = system.agent.hang
    system.control_plane.starts.start_timeout = 4.0
    assert (await system.start(id="unknown")).status == 420
    [(owed,)] = await system.rows("SELECT count(*) FROM stop_order WHERE confirmed_ms IS NULL")
    assert owed == 1


if __name__ == "__main__":
    asyncio.run(store(Path(sys.argv[1])))
