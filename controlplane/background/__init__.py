"""Periodic background work."""
