"""`/metrics` of the control plane: state read at each scrape, and its listener."""
