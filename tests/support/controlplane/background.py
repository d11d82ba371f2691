"""Conditions of what a control plane does in the background."""

import asyncio
import re

from controlplane.app.control_plane import ControlPlane
from tests.support.tasks import waits_at

_ROUND_ENDED = {
    "upkeep": re.compile(r"run \(upkeep\.py:\d+\) > sleep "),
    "surplus": re.compile(r"run \(surplus\.py:\d+\) > wait "),
}
"""Where the tasks that remove old rows wait for their next round, or a trusted clock, by name."""


def is_at_rest(control_plane: ControlPlane) -> bool:
    """Return whether a control plane is ready, has written the events of its hosts' reports, and
    removes no old rows.
    """
    writers = control_plane._event_writers
    return (
        control_plane.fleet.ready
        and _has_noted_reports(control_plane)
        and not any(writer._follower._is_running for writer in writers)
        and _no_rows_are_removed()
    )


def _has_noted_reports(control_plane: ControlPlane) -> bool:
    images = {
        host.name: host.state.report.images
        for host in control_plane.fleet.hosts
        if host.state.has_reported and host.state.report is not None
    }
    _, of_tags = control_plane._event_writers
    return images.items() <= of_tags._seen.items()


def _no_rows_are_removed() -> bool:
    """Return whether no control plane of this loop does: names of tasks do not tell which."""
    tasks = [task for task in asyncio.all_tasks() if task.get_name() in _ROUND_ENDED]
    return all(_ROUND_ENDED[task.get_name()].match(waits_at(task)) for task in tasks)


def has_its_images(control_plane: ControlPlane) -> bool:
    """Return whether every host had the desired images at the last comparison."""
    return all(host.images.idle for host in control_plane.fleet.hosts)
