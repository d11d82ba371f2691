"""Files of ended sessions, harmless and bounded."""
