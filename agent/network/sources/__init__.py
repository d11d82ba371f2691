"""The address and port from which containers send."""
