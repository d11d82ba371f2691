"""What a service manager hears of a control plane."""

import asyncio
import os
import socket
import sys
from pathlib import Path

from tests.support.harness import ROOT, free_port, to_toml
from tests.support.service_manager import a_manager


async def test_the_program_is_ready_once_it_answers_and_tells_before_it_stops(
    tmp_path: Path,
) -> None:
    port = free_port()
    settings = tmp_path / "controlplane.toml"
    listeners = {"api_listen": f"127.0.0.1:{port}", "enrol_listen": "", "metrics_listen": ""}
    settings.write_text(to_toml({"state_dir": str(tmp_path / "state"), **listeners}), "utf-8")
    with a_manager(str(tmp_path / "notify")) as manager:
        served = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "controlplane", "serve", "--config", str(settings)),
            cwd=ROOT,
            env={**os.environ, "NOTIFY_SOCKET": manager.address},
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            assert await manager.next() == "READY=1"
            socket.create_connection(("127.0.0.1", port), 10).close()
            served.terminate()
            assert await manager.next() == "STOPPING=1"
        finally:
            if served.returncode is None:
                served.terminate()
            assert await served.wait() == 0
