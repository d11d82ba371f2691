"""The state directory: locks, ownership and secret files."""
