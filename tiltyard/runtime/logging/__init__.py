"""The log of both programs: an event with fields in, one line on standard error out.

Events are each program's own. How they are written, bounded and redacted is the same in both.
"""
