"""Statements that several tables need."""

import functools
from typing import Any

from controlplane.storage.engine.database import Database

PORTION = 1000  # Rows removed per transaction: bounds how long others wait


def write_row(db: Database, table: str, row: dict[str, Any], key: str = "") -> bool:
    """Insert a row, or change the one that has its `key`; return whether anything changed.

    The columns of `row` are set, others keep their values or defaults. `key`: the columns of a
    unique key.
    """
    return bool(db.execute(_write(table, tuple(row), key), row).rowcount)


@functools.cache  # there are few tables and columns, and a claim writes one of the widest rows
def _write(table: str, columns: tuple[str, ...], key: str) -> str:
    names = ", ".join(columns)
    values = ", ".join(f":{column}" for column in columns)
    sql = f"INSERT INTO {table}({names}) VALUES ({values})"  # noqa: S608
    if key:
        # A key that is set, even to itself, is searched for in all tables that refer to it.
        others = [column for column in columns if column not in key.split(", ")]
        old = ", ".join(f"{table}.{column}" for column in others)
        new = ", ".join(f"excluded.{column}" for column in others)
        changes = ", ".join(f"{column}=excluded.{column}" for column in others)
        sql += f" ON CONFLICT({key}) DO UPDATE SET {changes}"
        sql += f" WHERE ({old}) IS DISTINCT FROM ({new})"
    return sql


def remove_some(
    db: Database, table: str, key: str, condition: str, *, value: int | str
) -> list[tuple[Any, ...]]:
    """Remove at most PORTION rows by a condition on `:value`; return their keys.

    `key`: the columns of a unique key.
    """
    chosen = f"SELECT {key} FROM {table} WHERE {condition} LIMIT :portion"  # noqa: S608
    sql = f"DELETE FROM {table} WHERE ({key}) IN ({chosen}) RETURNING {key}"  # noqa: S608
    return db.execute(sql, {"value": value, "portion": PORTION}).fetchall()
