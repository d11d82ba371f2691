"""Accounts and tokens: callers, and what they may do."""
