"""What an agent tells Prometheus of itself: counted as it happens, or read when it is asked."""
