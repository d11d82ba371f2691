"""Events: what has changed, for whom, and by whom. Pure."""
