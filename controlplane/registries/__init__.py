"""Registries of images: the client of the distribution API."""
