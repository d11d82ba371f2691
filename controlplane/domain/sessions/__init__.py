"""Sessions, the attempts to start them, and what hosts say of them. Pure."""
