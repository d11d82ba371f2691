"""The log of both programs: an event with fields in, one line on standard error out.

What is logged is each program's own. How it is written, bounded and redacted is the same in both,
so that whoever reads one log can read the other.
"""
