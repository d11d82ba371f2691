"""Callers, their accounts, tokens and quotas, and the audit of what they did. Pure."""
