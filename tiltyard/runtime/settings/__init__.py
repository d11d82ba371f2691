"""Reads and checks a settings file. The settings themselves are each program's own."""
