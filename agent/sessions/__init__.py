"""The life of sessions on a host: admission, start, claim, end, cleanup."""
