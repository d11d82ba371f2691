"""Webhooks, how far they have come, and their attempts."""
