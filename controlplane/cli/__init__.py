"""The command line: the server, and operator commands that call the HTTP API."""
