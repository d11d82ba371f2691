"""Accounts and their tokens."""
