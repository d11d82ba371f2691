"""nginx and HAProxy of Debian in front of a control plane, as root's packages configure them."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.controlplane.system import PATIENCE
from tests.support.harness import free_port

NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{ }}
http {{
    access_log off;
    gzip on;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {quiet}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{api}; }}
    }}
}}
"""
HAPROXY = """
defaults
    mode http
    timeout connect 5000
    timeout client 50000
    timeout server {quiet}
listen api
    bind 127.0.0.1:{port}
    {check}
    server api 127.0.0.1:{api} {check_server}
"""
KINDS = ("nginx", "haproxy")


@contextlib.asynccontextmanager
async def proxy(
    kind: str, folder: Path, api: int, *, quiet: float | None = None, checks: bool = False
) -> AsyncIterator[str]:
    """Start a proxy of the API on this port; return its base URL.

    `quiet`: seconds after which it cuts a stream without data, by default those of the package.
    `checks`: HAProxy asks with OPTIONS whether the API is there.
    """
    port = free_port()
    settings = folder / f"{kind}.conf"
    if kind == "nginx":
        cut = "" if quiet is None else f"proxy_read_timeout {quiet:g}s;"
        settings.write_text(NGINX.format(folder=folder, port=port, api=api, quiet=cut))
        command = ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(settings)]
    else:
        cut = f"{50.0 if quiet is None else quiet:g}s"
        check = {"check": "option httpchk", "check_server": "check inter 100ms fall 1"}
        check = check if checks else dict.fromkeys(check, "")
        settings.write_text(HAPROXY.format(port=port, api=api, quiet=cut, **check))
        command = ["haproxy", "-db", "-f", str(settings)]
    program = shutil.which(command[0], path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert program is not None, f"{command[0]} is not installed: .ci/prerequisites installs it"
    process = await asyncio.create_subprocess_exec(program, *command[1:])
    try:
        await _accepts(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def _accepts(port: int) -> None:
    """Wait until a port accepts connections."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
