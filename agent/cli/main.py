"""`tiltyard-agent`: its commands.

Commands that talk to the socket are used all the time and start fast: what only the others need is
imported when one of them is called.
"""

from collections.abc import Callable
from typing import Any

import click

from agent.cli import debug
from agent.cli.drain import drain, undrain


class Deferred(click.Command):
    """A command whose module is imported when it is called."""

    def __init__(self, name: str, short_help: str, load: Callable[[], click.Command]) -> None:
        super().__init__(name, help=short_help)
        self.load = load

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Make the context of the command itself."""
        return self.load().make_context(info_name, args, parent, **extra)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tiltyard")
def main() -> None:
    """The Tiltyard agent of a host, and commands to inspect it."""


def _serve() -> click.Command:
    from agent.cli.serve import serve

    return serve


def _config() -> click.Command:
    from agent.cli.config import config

    return config


def _doctor() -> click.Command:
    from agent.cli.doctor import doctor

    return doctor


def _enrol() -> click.Command:
    from agent.cli.enrol import enrol_host

    return enrol_host


def _firewall() -> click.Command:
    from agent.cli.firewall import firewall

    return firewall


DEFERRED = (
    Deferred("serve", "Run the agent until SIGTERM or SIGINT; containers keep running.", _serve),
    Deferred("config", "Check the settings.", _config),
    Deferred("doctor", "Check this host, with or without a running agent.", _doctor),
    Deferred("enrol", "Enrol this host with a control plane.", _enrol),
    Deferred(
        "firewall",
        "Protect this host's services and the cloud's metadata service from sessions.",
        _firewall,
    ),
)

for _command in (*debug.COMMANDS, drain, undrain, *DEFERRED):
    main.add_command(_command)
