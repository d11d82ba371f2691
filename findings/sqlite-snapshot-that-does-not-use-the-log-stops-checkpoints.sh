#!/usr/bin/env bash
# apsw 3.46.1.0 (PyPI, with SQLite 3.46.1): a reader whose snapshot begins right after a checkpoint
# that was complete reads the database file alone. It holds up the write-ahead log all the same,
# and in another way than a reader of the log.
#
# Seen: the next writer begins the log again beneath that open snapshot (the sequence number in the
# header of the log grows by 1), and from then on each checkpoint writes back 0 frames and reports
# no error, until the snapshot ends. Beneath a snapshot that needs the log, the log is not begun
# again, and a checkpoint still writes back the frames up to the snapshot. So neither "a reader
# keeps the log from being begun again" nor "a checkpoint gets as far as the oldest reader" holds
# for a reader that comes at that moment; one long snapshot is enough for a log without bound.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check apsw==3.46.1.0

"$work/venv/bin/python" - "$work" <<'EOF'
import sys
from pathlib import Path

import apsw

print("apsw", apsw.apsw_version(), "SQLite", apsw.sqlite_lib_version())


def run(name: str, *, is_complete: bool) -> tuple[int, list[tuple[int, int]]]:
    """Return how often the log was begun again, and each checkpoint as (frames, written back)."""
    path = Path(sys.argv[1]) / name
    log = path.with_name(name + "-wal")
    writer = apsw.Connection(str(path))
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("PRAGMA wal_autocheckpoint=0")
    writer.execute("CREATE TABLE event(number)")
    if is_complete:
        writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    assert list(reader.execute("SELECT count(*) FROM event")) == [(0,)]
    before = int.from_bytes(log.read_bytes()[12:16], "big")
    checkpoints = []
    for number in range(3):
        writer.execute("INSERT INTO event VALUES (?)", (number,))
        checkpoints.append(writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE))
    begun = int.from_bytes(log.read_bytes()[12:16], "big") - before
    assert list(reader.execute("SELECT count(*) FROM event")) == [(0,)]
    print(f"{name}: begun again {begun} times; (frames, written back): {checkpoints}")
    return begun, checkpoints


begun, checkpoints = run("snapshot-after-a-complete-checkpoint", is_complete=True)
assert begun == 1, begun
assert [written for _, written in checkpoints] == [0, 0, 0], checkpoints
begun, checkpoints = run("snapshot-that-needs-the-log", is_complete=False)
assert begun == 0, begun
assert all(0 < written < frames for frames, written in checkpoints), checkpoints
EOF
