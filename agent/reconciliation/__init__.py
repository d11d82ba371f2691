"""Reconciliation of sessions with the containers of the engine, from the start on."""
