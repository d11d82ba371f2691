"""Use cases of sessions: start, claim, read, stop, players."""
