"""The hosts: what is known of them, where sessions go, and the calls to their agents."""
