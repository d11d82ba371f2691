"""A client of the agent's unix socket, for the debug commands and the doctor."""
