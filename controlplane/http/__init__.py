"""The HTTP server, independent of the API: connections, TLS, limits, JSON, errors."""
