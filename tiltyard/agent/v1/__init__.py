"""Version 1 of the agent contract."""
