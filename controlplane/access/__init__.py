"""Who may do what: callers, their tokens, and the streams that end with a token."""
