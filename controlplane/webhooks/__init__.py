"""Webhooks: deliver the events of accounts to their endpoints."""
