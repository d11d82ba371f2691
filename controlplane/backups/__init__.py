"""Backup and restore of the control plane's state."""
