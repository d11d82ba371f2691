"""The images of a host, and their pulls."""
