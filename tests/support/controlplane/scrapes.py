"""Reading a control plane's metrics as Prometheus does."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.controlplane.system import System, eventually

PREFIX = "tiltyard_controlplane_"
PROCESS = ("process_", "python_")


@dataclass(frozen=True)
class Scrape:
    """One scrape of the metrics; names are without the program's prefix."""

    text: str
    families: dict[str, Metric]

    def sum(self, name: str, **labels: str) -> float:
        """Sum the series of a sample name with these labels."""
        return sum(
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == PREFIX + name and labels.items() <= sample.labels.items()
        )

    def series(self) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        """Return all of our series by name and labels."""
        return {
            (sample.name, frozenset(sample.labels.items()))
            for family in self.families.values()
            for sample in family.samples
            if sample.name.startswith(PREFIX)
        }

    def values(self, name: str, label: str) -> set[str]:
        """Return the values of a label of a family."""
        return {sample.labels[label] for sample in self.families[PREFIX + name].samples}


class Scraped(System):
    """A control plane with metrics that are read over HTTP."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **{"metrics_listen": "127.0.0.1:0", **settings})

    async def scrape(self) -> Scrape:
        """Read the metrics."""
        async with self.http.get(f"{self.control_plane.metrics_url}/metrics") as response:
            text = await response.text()
            assert response.status == 200, text
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return Scrape(text, {f.name: f for f in text_string_to_metric_families(text)})

    async def shows(self, holds: Callable[[Scrape], bool]) -> None:
        """Wait until a condition on the metrics holds."""

        async def shown() -> bool:
            return holds(await self.scrape())

        await eventually(shown)
