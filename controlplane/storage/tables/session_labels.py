"""The labels by which live sessions are found, within a transaction.

A session that is removed or gets another id takes them with it.
"""

import json
from collections.abc import Mapping

from sqlite_utils import Database


def add_labels(db: Database, account: str, session_id: str, labels: Mapping[str, str]) -> None:
    """Have a session, which has none yet, found by labels.

    Of names that SQLite takes for the same, such as those that differ after a NUL, one is kept:
    a host can report any.
    """
    if labels:
        db.execute(
            "INSERT OR IGNORE INTO live_label(account, session, name, value)"
            " SELECT :account, :id, key, value FROM json_each(:labels)",
            {"account": account, "id": session_id, "labels": json.dumps(dict(labels))},
        )


def remove_labels(db: Database, account: str, session_id: str) -> None:
    """Have a session found by no label: it has ended, or gets others."""
    db.execute(
        "DELETE FROM live_label WHERE account = :account AND session = :id",
        {"account": account, "id": session_id},
    )


def replace_labels(db: Database, account: str, session_id: str, labels: Mapping[str, str]) -> None:
    """Have a session found by these labels and no others."""
    remove_labels(db, account, session_id)
    add_labels(db, account, session_id, labels)
