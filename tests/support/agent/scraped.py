"""The metrics of a host in memory, read through its listener."""

import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

import aiohttp
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from agent.kernel.clock import SystemHostClock
from agent.metrics_endpoint.collector import HostGauges
from agent.metrics_endpoint.listener import MetricsListener
from agent.network.led_ports import HostPort
from tests.support.agent.hosts import Agent, host_report
from tests.support.harness import free_port
from tests.support.tasks import running

PREFIX = "tiltyard_agent_"
CLOCK = SystemHostClock()


class Scrape:
    """One answer of /metrics."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = {family.name: family for family in families}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): float(sample.value)
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, /, **labels: str) -> float | None:
        """Return the value of a series of the agent; None if there is none."""
        return self._values.get((PREFIX + name, frozenset(labels.items())))

    @property
    def own(self) -> dict[str, Metric]:
        """The metric families of the agent, without those of its process."""
        return {k: v for k, v in self.families.items() if k.startswith(PREFIX)}


@dataclass
class Scraped:
    """The address of a listener, its client, and what parts would say that the agent lacks."""

    address: str
    client: aiohttp.ClientSession
    flush_failures: int = 0
    firewall_intact: bool = True
    led_elsewhere: list[HostPort] = field(default_factory=list)

    async def __call__(self) -> Scrape:
        return await scraped_from(self.client, self.address)

    async def healthz(self) -> int:
        async with self.client.get(f"http://{self.address}/healthz") as answer:
            return answer.status


async def scraped_from(client: aiohttp.ClientSession, address: str) -> Scrape:
    """Scrape once."""
    async with client.get(f"http://{address}/metrics") as answer:
        assert answer.status == 200
        return Scrape(text_string_to_metric_families(await answer.text()))


@contextlib.asynccontextmanager
async def scraped(agent: Agent) -> AsyncIterator[Scraped]:
    """Serve the metrics of an agent."""
    registry = agent.runtime.metrics.registry
    async with aiohttp.ClientSession() as client:
        shown = Scraped(f"127.0.0.1:{free_port()}", client)
        state = HostGauges(
            reservations=agent.reservations,
            feed=agent.runtime.feed,
            sessions=agent.sessions,
            warm_pools=agent.warm_pools,
            prepared=agent.prepared,
            images=agent.images,
            flush_failures=lambda: shown.flush_failures,
            firewall_intact=lambda: shown.firewall_intact,
            led_elsewhere=lambda: shown.led_elsewhere,
            report=lambda: host_report(agent),
        )
        registry.register(state)
        listener = MetricsListener(
            shown.address, registry, CLOCK, is_ready=lambda: agent.sessions.reconciled
        )
        try:
            async with running(listener.run()):
                await listener.serving.wait()
                yield shown
        finally:
            registry.unregister(state)
