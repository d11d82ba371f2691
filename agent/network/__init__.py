"""Host ports, and what may reach what."""
