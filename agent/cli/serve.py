"""`tiltyard-agent serve`."""

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading

from agent.app.daemon import Daemon
from agent.cli.options import EXIT_FAILED, fail
from agent.docker.engine import DockerEngine
from agent.doctor.exposure import exposure
from agent.domain.errors import DiskFullError
from agent.init.binary import NoInitError
from agent.kernel.clock import SystemHostClock
from agent.metrics.instruments import Metrics
from agent.settings.model import AgentConfig
from agent.state.state_format import NewerStateError, another_owner
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.logging.output import written
from tiltyard.runtime.settings import EXIT_CONFIG
from tiltyard.runtime.systemd import read_supervision

log = get_logger(__name__)

STOP_SECONDS = 55.0
"""Shutdown timeout: if all stages hang, they take as long; the unit sends SIGKILL after 60 s."""
LEAVE_SECONDS = 1.0  # Timeout of joining idle threads


def serve(config: AgentConfig) -> None:
    """Run the agent until SIGTERM or SIGINT; SIGHUP is ignored."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    supervision = read_supervision()
    stream = supervision.journal_stream
    with written(config.log_level, config.log_format, journal_stream=stream):
        if cause := another_owner(config.state_dir) or exposure(config.docker_socket):
            fail(f"it does not start: {cause}", EXIT_CONFIG)
        try:
            metrics = Metrics()
            clock = SystemHostClock()
            engine = DockerEngine(
                str(config.docker_socket),
                metrics=metrics,
                clock=clock,
                concurrent_starts=config.start_slots,
            )
            daemon = Daemon(config, engine, clock, supervision=supervision, metrics=metrics)
            asyncio.run(_serve(daemon))
        except (NewerStateError, NoInitError) as error:
            fail(f"it does not start: {error}", EXIT_CONFIG)
        except (RuntimeError, DiskFullError) as error:
            fail(str(error))
        except Exception:
            log.critical("unhandled exception", exc_info=True)
            sys.exit(EXIT_FAILED)
        _leave()


async def _serve(daemon: Daemon) -> None:
    work = asyncio.create_task(daemon.run(), name="daemon")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, work)
    try:
        await work
    except asyncio.CancelledError:
        log.info("stopped; containers keep running")


def _stop(work: asyncio.Task[None]) -> None:
    """Stop; after STOP_SECONDS, dump the stacks of all threads and exit."""
    faulthandler.dump_traceback_later(STOP_SECONDS, exit=True)
    work.cancel()


def _leave() -> None:
    """Exit without waiting for threads that are blocked by the engine or a disk."""
    here = threading.current_thread()
    others = [each for each in threading.enumerate() if not (each.daemon or each is here)]
    for thread in others:
        thread.join(LEAVE_SECONDS / len(others))
    if stuck := [thread.name for thread in others if thread.is_alive()]:
        log.warning("not waiting for threads", task=stuck)
        logging.shutdown()
        os._exit(0)
