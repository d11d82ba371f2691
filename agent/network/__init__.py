"""Host ports, firewall, connection tracking and TLS termination."""
