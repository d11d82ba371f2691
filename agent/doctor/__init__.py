"""`tiltyard-agent doctor`: gathers facts of a host and checks them.

Facts are data, checks are pure functions over them. Nothing here changes anything, and a part of
the host that hangs does not hold up the other checks.
"""
