"""The commands of `tiltyard-agent`."""
