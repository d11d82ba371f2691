"""Name resolution for outgoing HTTP requests."""
