"""The log of events does not carry anything from an account to the next one of its name."""

import pytest

from tests.support.controlplane.event_reader import NDJSON, SSE, opened, reserve
from tests.support.controlplane.system import System, assert_error, eventually


async def make_again(system: System, account: str) -> str:
    """Remove an account and create it again; return the token of the new one."""
    operator = system.operator_token
    path = f"/operator/account/{account}"
    (await system.call("DELETE", path, token=operator)).expect(204)

    async def is_made() -> bool:
        body = {"name": account}
        made = await system.call("POST", "/operator/account", token=operator, json=body)
        if made.status == 201:
            system.tokens[account] = made.json["token"]
        return made.status == 201

    await eventually(is_made)
    return system.tokens[account]


@pytest.mark.parametrize("form", ["application/json", SSE, NDJSON])
async def test_next_account_of_a_name_reads_nothing_of_the_former_from_memory(
    system: System, form: str
) -> None:
    """A follower of another account keeps the newest events in memory."""
    async with opened(system):
        before = await system.control_plane.event_log.newest()
        await reserve(system, "secret", account="bob")
        token = await make_again(system, "bob")
        path = f"/event?after={before}&follow=false"
        answer = await system.call("GET", path, token=token, headers={"Accept": form})
        gone = await system.call("GET", f"/event?after={before}", token=token)
    assert "secret" not in answer.text
    assert_error(gone, 410)
