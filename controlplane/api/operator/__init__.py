"""API calls for operators."""
