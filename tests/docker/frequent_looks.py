"""An agent that looks for changes by others each second: `python -m tests.docker.frequent_looks`.

As shipped it looks every 10 s, for which tests would wait.
"""

from contextlib import ExitStack
from unittest import mock

from agent.cli.main import main

PROGRAM = ("tests.docker.frequent_looks",)
_LOOKING = (
    "agent.limits.kernel_limits",
    "agent.network.firewall_watch",
    "agent.network.sources.source_translation",
)

if __name__ == "__main__":
    with ExitStack() as stack:
        for module in _LOOKING:
            stack.enter_context(mock.patch(f"{module}.LOOK_SECONDS", 1.0))
        main(prog_name="tiltyard-agent")
