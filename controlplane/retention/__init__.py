"""Removal of old rows: after their retention, and beyond the number that an account may keep."""
