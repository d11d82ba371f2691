"""Statements that several tables need."""

from typing import Any

from controlplane.storage.engine.store import Database


def write_row(db: Database, table: str, row: dict[str, Any], key: str = "") -> bool:
    """Insert a row, or change the one that has its `key`; return whether anything changed.

    The columns of `row` are set, others keep their values or defaults.
    """
    columns, values = ", ".join(row), ", ".join(f":{column}" for column in row)
    sql = f"INSERT INTO {table}({columns}) VALUES ({values})"  # noqa: S608
    if key:
        new = ", ".join(f"excluded.{column}" for column in row)
        sql += f" ON CONFLICT({key}) DO UPDATE SET ({columns}) = ({new})"
        sql += f" WHERE ({columns}) IS NOT ({new})"
    return bool(db.execute(sql, row).rowcount)
