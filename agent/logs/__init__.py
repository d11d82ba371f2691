"""Output of sessions: followed while they live, sealed after their end."""
