"""Webhooks: their messages, signatures, retries and allowed targets. Pure."""
