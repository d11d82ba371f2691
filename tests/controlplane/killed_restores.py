"""A program that kills a restore before each thing it does to a file, and looks at what is left.

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
from pathlib import Path

from controlplane.backups.restore import finish, restore
from controlplane.settings.model import Config
from tests.controlplane.kept_states import NOW, a_backup, a_state, contents

DEEDS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect"}


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Do something in a child that is killed before its deed of this number; whether it was."""
    pid = os.fork()
    if pid == 0:
        left = [number]

        def count(event: str, _: object) -> None:
            if event in DEEDS:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
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
    state, found, number = folder / "state", Counter[str](), 0
    was_killed = True
    while was_killed:
        number += 1
        _copy(config.state_dir, state)
        was_killed = killed_at(number, lambda: _restore(state, backup))
        # What is left is finished by one that is killed as well, each time a little later.
        if list(state.glob("*.ready")):
            found["killed again"] += killed_at(1 + number % 9, lambda: finish(state))
        finish(state)
        finish(state)
        here = contents(state)
        assert here in (old, new), f"deed {number}: neither the old state nor the new one"
        found["old" if here == old else "new"] += 1
        aside = [contents(path) for path in state.glob("replaced-*")]
        assert aside == [old] * (here == new), f"deed {number}: what was there is not kept"
        assert not [*state.glob("*.ready"), *state.glob("*.draft")]
    print(json.dumps(found))  # noqa: T201  # it is how a program answers


def _restore(state: Path, backup: Path) -> None:
    with backup.open("rb") as file:
        restore(Config(state_dir=state), file, NOW, replace=True)


def _copy(source: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
