"""A pytest plugin that saves time of the processor: while tests are collected, and afterwards.

All tests and modules, once collected, stay until the end. The garbage collector does not look at
them again, which took a twelfth of the time of all tests.

If several processes collect the same tests, each begins to import them at another one. Otherwise,
after a change of the sources, all would compile the same module at the same time.
"""

import gc
import importlib
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest

COLLECT_AFTER = 10_000
"""Threshold of the first generation of objects: most of those of a test end with the test."""


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep the garbage collector away from modules and tests, now and later."""
    gc.disable()
    try:
        _import_modules(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        gc.enable()


def _import_modules(config: pytest.Config) -> None:
    """Import what will be collected; errors are left to the collection, which reports them."""
    worker: dict[str, str] = getattr(config, "workerinput", {})
    if not worker:
        return
    names = list(_modules(config))
    begin = len(names) * int(worker["workerid"].removeprefix("gw")) // int(worker["workercount"])
    for name in names[begin:] + names[:begin]:
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


def _modules(config: pytest.Config) -> Iterator[str]:
    """Return the names of the modules of tests in the folders that were given."""
    for argument in config.args:
        for path in sorted((config.rootpath / argument).rglob("test_*.py")):
            yield ".".join(path.relative_to(config.rootpath).with_suffix("").parts)
