"""`python -m agent` is `tiltyard-agent`."""

from agent.cli.main import main

main(prog_name="tiltyard-agent")
