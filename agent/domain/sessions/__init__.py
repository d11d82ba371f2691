"""Sessions: their records, environment, deadlines, restarts and stops. Pure."""
