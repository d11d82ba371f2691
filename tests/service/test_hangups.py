"""SIGHUP to a process that does not serve yet, that serves, and that has stopped."""

import subprocess
import sys

PROGRAM = """
import asyncio, os, signal
from tiltyard.runtime.sighup import hold_back, let_in

async def serve():
    taken = asyncio.Event()
    with let_in(taken.set):
        await taken.wait()
        print("taken", flush=True)
        taken.clear()
        os.kill(os.getpid(), signal.SIGHUP)
        await taken.wait()
    os.kill(os.getpid(), signal.SIGHUP)

hold_back()
os.kill(os.getpid(), signal.SIGHUP)
asyncio.run(serve())
os.kill(os.getpid(), signal.SIGHUP)
print("ended", flush=True)
"""


def test_it_waits_for_who_takes_it_and_ends_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode().split()) == (0, ["taken", "ended"])
