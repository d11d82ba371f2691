"""Hosts: what they report, and the state that each is ordered to reach. Pure."""
