"""Reads, checks and reloads a settings file. The settings themselves are each program's own."""
