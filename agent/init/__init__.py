"""The first process of every session's container, and how the agent talks to it."""
