"""The log of events as its readers follow it: from memory if they are close behind."""
