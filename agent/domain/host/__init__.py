"""What the sessions of a host share: resources, ports, limits of the kernel. Pure."""
