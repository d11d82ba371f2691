"""Warm pools: which host keeps how many standbys."""
