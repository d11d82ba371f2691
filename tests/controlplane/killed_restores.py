"""A program that kills a restore before each change of a file, and checks what is left.

It prints how often the old state was left and how often the new one. A process of its own: it
forks, and each child has an audit hook, which nothing can take off again.
"""

import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

from controlplane.backups.restore import finish, restore
from controlplane.settings.model import Config
from tests.support.controlplane.kept_states import NOW, a_backup, a_state, contents

DEEDS = {"open", "os.link", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect"}


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Do something in a child that is killed before its deed of this number; whether it was."""
    pid = os.fork()
    if pid == 0:
        left = [number]

        def strike(event: str, _: object) -> None:
            if event in DEEDS:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(strike)
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # a child must not go on as its parent
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in {0, -signal.SIGKILL}, f"deed {number}: {code}"
    return code != 0


def main(folder: Path) -> None:
    config = a_state(folder / "old", "old")
    backup = a_backup(folder)
    old, new = contents(config.state_dir), contents(folder / "state of kept")
    state, ready, found = folder / "state", folder / "ready", Counter[str]()

    def is_sound(moment: str) -> bool:
        """What is left, once finished, is the old state or the new one; whether the new one."""
        finish(state)
        here = contents(state)
        assert here in (old, new), f"{moment}: neither the old state nor the new one"
        replaced = [contents(path) for path in state.glob("replaced-*")]
        assert replaced == [old] * (here == new), f"{moment}: the old files are not kept"
        assert not [*state.glob("*.ready"), *state.glob("*.draft")]
        return here == new

    for number in count(1):
        _copy(config.state_dir, state)
        was_killed = killed_at(number, lambda: _restore(state, backup))
        if (state / "restore.ready").exists() and not ready.exists():
            _copy(state, ready)
        found["new" if is_sound(f"restore, deed {number}") else "old"] += 1
        if not was_killed:
            break
    for number in count(1):
        _copy(ready, state)
        was_killed = killed_at(number, lambda: finish(state))
        assert is_sound(f"finish, deed {number}"), "a restore that is ready happens"
        found["finish"] += 1
        if not was_killed:
            break
    print(json.dumps(found))  # noqa: T201  # it is how a program answers


def _restore(state: Path, backup: Path) -> None:
    with backup.open("rb") as file:
        restore(Config(state_dir=state), file, NOW, replace=True)


def _copy(source: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
