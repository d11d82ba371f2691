"""Values and rules of the agent. Pure: no I/O, and time is an argument."""
