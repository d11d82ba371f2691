"""A gRPC server that answers an empty message with an empty message."""

from pathlib import Path
from typing import Any

import grpc

from tests.bench.programs import run, until_told

SOCKET = "empty.sock"
METHOD = "/bench.Empty/Call"


async def _call(_request: bytes, _context: Any) -> bytes:
    return b""


async def serve(folder: str) -> None:
    _, service, name = METHOD.split("/")
    server = grpc.aio.server()
    calls: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(_call)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, calls),))
    server.add_insecure_port(f"unix:{Path(folder) / SOCKET}")
    await server.start()
    await until_told()
    await server.stop(None)


if __name__ == "__main__":
    run(serve)
