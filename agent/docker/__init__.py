"""The Docker Engine as an `Engine`; nothing else of the agent knows Docker."""
