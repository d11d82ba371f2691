"""`/metrics` of the agent: state read at each scrape, and the listener that serves it."""
