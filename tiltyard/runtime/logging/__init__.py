"""Structured logging of both programs: one line on standard error per event."""
