"""`tiltyard-agent`: the command of the service, and the debug commands."""
