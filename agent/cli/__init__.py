"""`tiltyard-agent`: the daemon's command, and those that look into a host."""
