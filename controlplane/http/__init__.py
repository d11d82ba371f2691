"""The HTTP server: connections, TLS, limits, JSON and error bodies. It knows no call."""
