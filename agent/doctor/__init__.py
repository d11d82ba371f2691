"""`tiltyard-agent doctor`: gathers facts of a host and checks them by pure functions."""
