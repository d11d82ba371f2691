"""What is amiss with a host: facts are gathered (gather.py), then judged (diagnosis.py).

The facts are data, the checks pure functions over them. Nothing here changes anything, and no part
of the host that hangs holds up the rest.
"""
