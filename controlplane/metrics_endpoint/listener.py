"""`GET /metrics` on its own listener, since it needs no token."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web
from prometheus_client import generate_latest

from controlplane.http.application import Application
from controlplane.http.gate import Bounds
from controlplane.metrics.http import HttpMetrics
from controlplane.metrics.registry import Metrics
from controlplane.metrics_endpoint.live import LiveCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # Supported by every scraper
BOUNDS = Bounds(total=32, per_address=16)  # A few scrapers and manual calls


class Exposition:
    """Answers scrapes one at a time; formats on a thread to spare the event loop."""

    def __init__(self, metrics: Metrics, live: LiveCollector) -> None:
        metrics.registry.register(live)
        self._metrics = metrics
        self._live = live
        self._scraping = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, "metrics")

    def close(self) -> None:
        """Stop the thread. Idempotent."""
        self._pool.shutdown(wait=False)  # a scrape takes milliseconds

    def make_app(self) -> Application:
        """Build the application of the listener."""
        app = Application(HttpMetrics())  # scrapes are not counted
        app.add_route("GET", "/metrics", self._scrape)
        return app

    async def _scrape(self, _: web.Request) -> web.Response:
        async with self._scraping:
            await self._live.refresh()
            loop = asyncio.get_running_loop()
            text = await loop.run_in_executor(self._pool, generate_latest, self._metrics.registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})
