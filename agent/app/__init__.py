"""The agent put together: its parts are started in order and stopped in stages."""
