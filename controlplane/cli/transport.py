"""One HTTP exchange, on a connection of its own.

It is apart from `api_client`, which imports it for a call only: aiohttp takes longer to import
than all that a command needs to show its help or to find a mistake in its arguments.
"""

import asyncio
import ssl

import aiohttp
from yarl import URL

from tiltyard.runtime.unreachable import why


def exchange(
    method: str,
    url: str,
    *,
    token: str,
    body: bytes | None,
    tls: ssl.SSLContext,
    timeout: float,
) -> tuple[int, bytes]:
    """Send a request and wait for its complete response: status and body.

    Raises:
        TimeoutError: It did not come in time.
        ssl.SSLError: There is no TLS connection.
        ConnectionError: There is no answer; the text says why.
    """
    try:
        return asyncio.run(
            _exchange(method, url, token=token, body=body, tls=tls, timeout=timeout)
        )
    except TimeoutError:
        raise
    except ssl.SSLError as error:
        raise ssl.SSLError(why(error)) from None
    except (aiohttp.ClientError, OSError) as error:
        raise ConnectionError(why(error)) from None


async def _exchange(
    method: str,
    url: str,
    *,
    token: str,
    body: bytes | None,
    tls: ssl.SSLContext,
    timeout: float,
) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session,
        # A redirect would take the token to somewhere else.
        session.request(
            method,
            URL(url, encoded=True),
            data=body,
            headers=headers,
            ssl=tls,
            allow_redirects=False,
        ) as response,
    ):
        return response.status, await response.read()
