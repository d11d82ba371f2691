"""Service runtime: logging, settings files, systemd, failpoints, clocks."""
