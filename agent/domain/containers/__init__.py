"""Containers of the engine, and the runs of sessions in them. Pure."""
