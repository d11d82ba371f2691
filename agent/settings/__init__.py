"""The agent's settings file and the host's policy file."""
