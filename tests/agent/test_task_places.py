"""Where an agent begins tasks: no unexpected error of one ends the agent."""

import ast
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent.hosts import until
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tests.support.agent.served import WholeAgent
from tests.support.fake_engine import FakeEngine
from tests.support.harness import free_port
from tests.support.source_trees import READS_SOURCES, ROOT, file_of, modules, walk

# -- loops of the daemon --------------------------------------------------------------------------

LOOPS = {
    "reconciler": ("agent.reconciliation.reconciler", "Reconciler.run"),
    "listener": ("agent.reconciliation.reconciler", "Reconciler.listen"),
    "warm-pools": ("agent.sessions.warm_pools", "WarmPools.run"),
    "prepared": ("agent.sessions.prepared_containers", "PreparedContainers.run"),
    "usage": ("agent.kernel.usage", "UsageMeter.run"),
    "disk-limits": ("agent.limits.disk_limits", "DiskLimits.run"),
    "kernel-limits": ("agent.limits.kernel_limits", "LimitWatch.run"),
    "log-limits": ("agent.limits.log_limits", "LogLimits.run"),
    "tls-ports": ("agent.network.tls_ports", "TlsPorts.run"),
    "source-translation": (
        "agent.network.sources.source_translation",
        "SourceTranslation.run",
    ),
    "watchdog": ("tiltyard.runtime.systemd", "Notifier.beat"),
    "deadlines": ("agent.sessions.manager", "SessionManager.keep_deadlines"),
    "loop-lag": ("tiltyard.runtime.metrics.loop_lag", "watch"),
    "metrics": ("agent.metrics_endpoint.listener", "MetricsListener.run"),
    "tls-server": ("agent.rpc.tls_server", "TlsServer.run"),
    "firewall": ("agent.network.firewall_watch", "FirewallWatch.run"),
}
"""Each loop of the daemon, with its function."""


def test_each_loop_of_the_daemon_is_listed() -> None:
    tree = ast.parse((ROOT / "agent/app/daemon.py").read_text())
    [loops] = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name == "_loops"
    ]
    yields = [each.value for each in ast.walk(loops) if isinstance(each, ast.Yield)]
    names = [ast.literal_eval(each.elts[0]) for each in yields if isinstance(each, ast.Tuple)]
    assert sorted(names) == sorted(LOOPS)


@pytest.mark.parametrize("name", sorted(LOOPS))
async def test_loop_of_the_daemon_runs_again_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module, path = LOOPS[name]
    owner: Any = sys.modules[module]
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    work = getattr(owner, attribute)
    ran_again = asyncio.Event()
    runs: list[str] = []

    async def failing(*args: Any) -> None:
        runs.append(name)
        if len(runs) == 1:
            raise RuntimeError("as scripted")
        ran_again.set()
        if name == "firewall":  # which would read this machine's rules
            await asyncio.Event().wait()
        await work(*args)

    monkeypatch.setattr(owner, attribute, failing)
    monkeypatch.setattr("agent.app.daemon.LOOP_PAUSE_SECONDS", 0.01)
    engine = FakeEngine()
    engine.image_store.add(IMAGE)
    agent = WholeAgent(tmp_path, "a", engine=engine)
    settings = {
        "metrics_listen": f"127.0.0.1:{free_port()}",
        "rpc_listen": f"127.0.0.1:{free_port()}",
        "firewall_bridges": ("docker0",) if name == "firewall" else (),
    }
    agent.config = agent.config.model_copy(update=settings)
    async with agent:
        async with asyncio.timeout(30):
            await ran_again.wait()
        await until(lambda: agent.daemon.sessions.reconciled)
        registry = agent.daemon.metrics.registry
        assert registry.get_sample_value("tiltyard_agent_internal_errors_total") == 1
        await agent.daemon.sessions.start(an_id(), a_spec())


# -- every place at which a task begins -----------------------------------------------------------

AWAITED = "the code that begins the task awaits it, and gets its error"
LOGGED = "asyncio logs the error of a connection"
PLACES = {
    "agent/app/daemon.py run": "test_loop_of_the_daemon_runs_again_after_an_unexpected_error",
    "agent/artifacts/fetching.py _packed": AWAITED,
    "agent/cli/serve.py _serve": AWAITED,
    "agent/docker/calls.py run": AWAITED,
    "agent/docker/engine.py _known": AWAITED,
    "agent/images/images.py pull": "test_error_during_a_pull",
    "agent/init/channel.py wait": AWAITED,
    "agent/kernel/processes.py wait_end": AWAITED,
    "agent/metrics_endpoint/listener.py _open": LOGGED,
    "agent/network/tls_listener.py __init__": "test_error_of_one_connection_to_a_tls_port",
    "agent/network/tls_listener.py _accept": "test_error_of_one_connection_to_a_tls_port",
    "agent/network/tls_listener.py _admit": "test_error_of_one_connection_to_a_tls_port",
    "agent/network/tls_relay.py relay": AWAITED,
    "agent/rpc/claim_stream.py results": AWAITED,
    "agent/rpc/claim_stream.py _read": "test_error_of_one_claim_of_a_stream",
    "agent/sessions/containers.py renaming": "test_error_while_a_container_is_renamed",
    "agent/sessions/ending.py __init__": AWAITED,
    "agent/sessions/drains.py order": AWAITED,
    "agent/sessions/manager.py _own": "test_error_in_the_task_of_a_session",
    "agent/sessions/manager.py _begin_discard": "test_error_while_a_session_is_discarded",
    "agent/reconciliation/reconciler.py _do": "test_error_while_a_container_is_removed",
    "agent/sessions/prepared_containers.py follow": "test_error_after_a_start",
    "agent/sessions/preparing.py prepare": "test_error_of_a_preparation",
    "agent/sessions/preparing.py remove": "test_error_while_a_prepared_container_is_removed",
    "agent/sessions/readiness.py watch": AWAITED,
    "agent/sessions/starting.py _create_durably": AWAITED,
    "agent/sessions/warm_pools.py set": AWAITED,
    "agent/sessions/warm_pools.py _start": "test_error_about_a_standby_leaves_other_pools_full",
    "agent/sessions/warm_pools.py _discard": "test_error_while_a_standby_is_removed",
    "agent/state/record.py opened": AWAITED,
}
"""Where the agent begins a task, and the test of an unexpected error there."""

BEGINS = {"create_task", "ensure_future", "add_reader", "start_server"}


def _owners(nodes: list[ast.AST]) -> Iterator[str]:
    """Attributes that are assigned a TaskOwner."""
    for each in nodes:
        if not isinstance(each, ast.Assign | ast.AnnAssign) or each.value is None:
            continue
        named = [part.id for part in walk(each.value) if isinstance(part, ast.Name)]
        target = each.targets[0] if isinstance(each, ast.Assign) else each.target
        if "TaskOwner" in named:
            yield ast.unparse(target).rpartition(".")[2]


def _places() -> Iterator[str]:
    for name, nodes in modules().items():
        if not name.startswith("agent."):
            continue
        owners = set(_owners(nodes))
        for function in nodes:
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for call in walk(function):
                if _begins_task(call, owners):
                    yield f"{file_of(name)} {function.name}"


def _begins_task(node: ast.AST, owners: set[str]) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in BEGINS:
        return True
    return (
        isinstance(node, ast.Attribute)
        and node.attr in {"start", "finish"}
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in owners
    )


@READS_SOURCES
def test_each_place_at_which_a_task_begins_is_tested() -> None:
    assert set(_places()) == set(PLACES)
    modules = (Path(__file__), *Path(__file__).parent.glob("test_contained_*.py"))
    text = "".join(path.read_text() for path in modules)
    for place, test in PLACES.items():
        assert test in {AWAITED, LOGGED} or f"def {test}(" in text, place
