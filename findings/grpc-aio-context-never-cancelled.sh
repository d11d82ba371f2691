#!/usr/bin/env bash
# grpcio 1.85.1 (PyPI): in a server of grpc.aio, `ServicerContext.cancelled()` is False of every
# call that its caller cancelled.
#
# Seen: when the caller cancels, the handler gets asyncio.CancelledError, and its context says
# cancelled() False there, in `finally`, and in a callback added by add_done_callback. `done()` in
# that callback says False if the handler let the error pass, and True if it caught it. What asks
# `cancelled()` to find out whether anybody still waits for an answer never learns of it.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check grpcio==1.85.1

"$work/venv/bin/python" - <<'EOF'
import asyncio

import grpc

print("grpcio", grpc.__version__)


async def seen_by_the_server(passes_on: bool) -> dict[str, bool]:
    """Cancel one call; return what its context said, and where."""
    seen: dict[str, bool] = {}
    began, called_back = asyncio.Event(), asyncio.Event()

    def note_end(context: grpc.aio.ServicerContext) -> None:
        seen["callback: cancelled()"] = context.cancelled()
        seen["callback: done()"] = context.done()
        called_back.set()

    async def handle(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        context.add_done_callback(note_end)
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen["except: cancelled()"] = context.cancelled()
            if passes_on:
                raise
        finally:
            seen["finally: cancelled()"] = context.cancelled()
        return b""

    server = grpc.aio.server()
    handlers = {"Wait": grpc.unary_unary_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.Service", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/a.Service/Wait")(b"")
        await began.wait()
        assert call.cancel()
        await asyncio.wait_for(called_back.wait(), 10)
    await server.stop(0)
    return seen


async def main() -> None:
    for passes_on in (True, False):
        seen = await seen_by_the_server(passes_on)
        print("the handler passes the error on:" if passes_on else "it catches the error:", seen)
        assert {where for where, value in seen.items() if value} == (
            set() if passes_on else {"callback: done()"}
        )


asyncio.run(main())
EOF
