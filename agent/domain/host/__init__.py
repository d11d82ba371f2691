"""The resources that the sessions of a host share: capacity, ports, kernel limits. Pure."""
