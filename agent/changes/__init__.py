"""Changes of a host, and their watchers."""
