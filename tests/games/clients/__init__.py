"""Small clients of real games: each asks the server about itself, and joins as far as it can.

Every module has `play`, which gets the session's host and its public ports by container port.
"""
