"""Backups of the control plane's state, and restoring them."""
