"""`python -m agent` is `tiltyard-agent`."""

from agent.cli import main

main(prog_name="tiltyard-agent")
