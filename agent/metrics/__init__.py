"""Counters and histograms of an agent."""
