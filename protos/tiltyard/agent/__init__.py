"""The agent contract."""
