"""The agent's state on disk: session records, drain, warm pools, tombstones."""
