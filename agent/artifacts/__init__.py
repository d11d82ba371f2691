"""Files of ended sessions, sanitised and size-limited."""
