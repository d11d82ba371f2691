#!/usr/bin/env bash
# sqlite-utils 4.2.1 (PyPI): the first `upsert` of each connection creates a table, fills it,
# commits, and drops it again, in the database itself, to find out whether SQLite knows upserts.
#
# Seen: one upsert by a new connection adds 2 to `PRAGMA schema_version`, so every other connection
# compiles its statements anew, and what watches that number sees a change of the schema twice; the
# upsert costs three commits instead of one. A second upsert of the same connection adds nothing.
# Where connections are short, each write of one row pays for it.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check sqlite-utils==4.2.1

"$work/venv/bin/python" - "$work/file.db" <<'EOF'
import importlib.metadata
import sqlite3
import sys

import sqlite_utils

path = sys.argv[1]
print("sqlite-utils", importlib.metadata.version("sqlite-utils"), "SQLite", sqlite3.sqlite_version)
sqlite_utils.Database(path)["host"].create({"id": int, "free": int}, pk="id")
other = sqlite3.connect(path)


def schema_version() -> int:
    return other.execute("PRAGMA schema_version").fetchone()[0]


grown = []
for count in range(3):
    database = sqlite_utils.Database(path)
    for again in (False, True):
        statements: list[str] = []
        database.conn.set_trace_callback(statements.append)
        before = schema_version()
        database["host"].upsert({"id": 1, "free": count}, pk="id")
        writes = [each for each in statements if each.split()[0].lower() in {"create", "drop"}]
        grown.append(schema_version() - before)
        print(f"connection {count}, upsert {again + 1}: schema_version +{grown[-1]}")
        for each in writes:
            print("  ", " ".join(each.split()[:2]).lower(), "…")
        assert len(writes) == grown[-1]
    database.conn.close()
assert grown == [2, 0] * 3, grown
EOF
