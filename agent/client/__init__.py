"""The client of an agent's unix socket, for the debug commands and the doctor."""
