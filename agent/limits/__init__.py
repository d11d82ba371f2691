"""Limits of the disk space and the output of running sessions."""
