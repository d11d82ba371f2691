"""`/metrics` of the agent: gauges that are read at each scrape, and the listener."""
