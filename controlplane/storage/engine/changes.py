"""Sessions that transactions change, noted by triggers of the connection that writes.

The triggers exist in that connection alone, so the schema has none. No table's function can forget
to report a change.
"""

from sqlite_utils import Database

SessionKey = tuple[str, str]  # Account and id

_TRIGGER = (
    "CREATE TEMP TRIGGER session_{0} AFTER {0} ON main.session"
    " BEGIN SELECT note_session(OLD.account, OLD.id); END"
)


def note_changes(db: Database, changed: set[SessionKey]) -> None:
    """Add each session whose row is changed or removed, also if that is rolled back.

    Players change together with their number in the session's row.
    """
    db.conn.create_function("note_session", 2, lambda *key: changed.add(key))
    for kind in ("UPDATE", "DELETE"):
        db.execute(_TRIGGER.format(kind))
