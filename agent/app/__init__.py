"""The agent's composition root."""
