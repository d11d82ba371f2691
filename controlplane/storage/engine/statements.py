"""Statements that several tables need."""

from typing import Any

from controlplane.storage.engine.store import Database

PORTION = 1000  # Rows removed per transaction: bounds how long others wait


def write_row(db: Database, table: str, row: dict[str, Any], key: str = "") -> bool:
    """Insert a row, or change the one that has its `key`; return whether anything changed.

    The columns of `row` are set, others keep their values or defaults.
    """
    columns = ", ".join(row)
    values = ", ".join(f":{column}" for column in row)
    sql = f"INSERT INTO {table}({columns}) VALUES ({values})"  # noqa: S608
    if key:
        new = ", ".join(f"excluded.{column}" for column in row)
        sql += f" ON CONFLICT({key}) DO UPDATE SET ({columns}) = ({new})"
        sql += f" WHERE ({columns}) IS NOT ({new})"
    return bool(db.execute(sql, row).rowcount)


def remove_some(db: Database, table: str, condition: str, value: int | str) -> int:
    """Remove at most PORTION rows by a condition on `:value`; return how many."""
    chosen = f"SELECT rowid FROM {table} WHERE {condition} LIMIT :portion"  # noqa: S608
    sql = f"DELETE FROM {table} WHERE rowid IN ({chosen})"  # noqa: S608
    return int(db.execute(sql, {"value": value, "portion": PORTION}).rowcount)
