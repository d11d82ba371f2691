"""`tiltyard-agent doctor`: gathers facts of a host and evaluates them in pure functions."""
