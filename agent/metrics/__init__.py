"""Metrics of an agent: counted as events happen, or read at a scrape."""
