"""The state directory: its lock, its owner, files that hold secrets."""
