"""Shared parts of API calls: declaration, body, query and response."""
