"""Files of an ended session over HTTP, compared with `docker cp` and gzip.

A third is text, a third random, a third the game's own files: saves, replays and media compress
as differently.
"""

import random
import statistics
from typing import Any

from tests.bench.played import download, output_bytes, play, to_nowhere
from tests.bench.process_use import in_turn, seconds
from tests.bench.report import Result
from tests.support.agent.tars import tar_of_files
from tests.support.deployment import PATIENT, Deployment, Steps

BYTES = 90_000_000
FILES_OF_A_KIND = 3
_MB = 1_000_000


def measure(effort: int, steps: Steps) -> list[Result]:
    """Fetch the same folder in both ways, alternately."""
    size = effort * BYTES // 100
    rounds = max(3, effort * 7 // 100)
    with Deployment(steps, **PATIENT) as deployment:
        with steps.step(f"artifact, {size / _MB:g} MB of files"):
            each = size // (3 * FILES_OF_A_KIND)
            written = []
            for number in range(FILES_OF_A_KIND):
                written += ["--write-file", f"/data/game{number}", str(each)]
            session = play(deployment, *written, "--lines-per-second=1")
            session.wait_for_line("tick")
            deployment.client.delete_session(session.id).expect(204)
            _put_files(session.container, each)
        path = "/data"
        with steps.step(f"artifact, {rounds} rounds"):
            query = {"session": session.id, "path": path}
            pipeline = f"docker cp {session.container.name}:{path} - | gzip -1"
            taken = in_turn(
                rounds,
                {
                    "ours": lambda: seconds(
                        lambda: download(deployment.client, "/artifacts", **query)
                    ),
                    "docker": lambda: seconds(lambda: to_nowhere(pipeline)),
                },
            )
            ours, docker = map(statistics.median, taken.values())
            ours_bytes = download(deployment.client, "/artifacts", **query)
            docker_bytes = output_bytes(pipeline)
        return [
            Result("artifact.ours_s", ours, "s"),
            Result("artifact.docker_cp_gzip_s", docker, "s"),
            Result("artifact.ratio", docker / ours, "x", least=3),
            Result("artifact.size_ratio", ours_bytes / docker_bytes, "x", most=1.05),
        ]


def _put_files(container: Any, size: int) -> None:
    """Add text and random files to those of the ended game."""
    chance = random.Random(size)
    files: dict[str, bytes] = {}
    for number in range(FILES_OF_A_KIND):
        files[f"noise{number}"] = chance.randbytes(size)
        files[f"text{number}"] = _text(chance, size)
    assert container.put_archive("/data", tar_of_files(files))


def _text(chance: random.Random, size: int) -> bytes:
    """Return the state of players as a game may save it, one per line."""
    block = "".join(
        f'{{"player": "{chance.getrandbits(64):016x}", "x": {chance.random() * 1000:.3f}, '
        f'"y": {chance.random() * 1000:.3f}, "health": {chance.randrange(100)}}}\n'
        for _ in range(20_000)
    ).encode()
    return (block * (size // len(block) + 1))[:size]
