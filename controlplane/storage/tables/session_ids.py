"""The names that callers know a session by: its id, and the alias of one that was claimed."""

from sqlite_utils import Database


def own_id(db: Database, account: str, name: str) -> str:
    """Give the id of the session of an account that a name is an alias of; else the name."""
    sql = (
        "SELECT id FROM session WHERE account=:account AND alias=:name AND NOT EXISTS"
        " (SELECT 1 FROM session WHERE account=:account AND id=:name)"
    )
    row = db.execute(sql, {"account": account, "name": name}).fetchone()
    return str(row[0]) if row is not None else name
