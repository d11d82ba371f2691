"""The command line: the server, and operators' calls of the HTTP API."""
