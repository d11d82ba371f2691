"""PUT /application/{name}: the fields that the interface does not have."""

from typing import Any

import pytest

from tests.support.controlplane.system import APPLICATION, System, assert_error

pytestmark = pytest.mark.system(application={"tag": None})


async def application(system: System) -> Any:
    return (await system.read("/application"))["applications"][0]


@pytest.mark.parametrize(
    ("field", "value", "default"),
    [
        ("stopSignal", "SIGINT", ""),
        ("stopGrace", 30, 0),
        ("capabilities", ["CHOWN"], []),
        ("init", "image", "tiltyard"),
        ("contiguous", True, False),
        ("playerEvents", True, False),
    ],
)
async def test_additions_to_the_interface_can_be_reset(
    system: System, field: str, value: object, default: object
) -> None:
    body = {"capabilities": ["CHOWN"]}
    (await system.call("PUT", "/operator/node-pool/default", json=body)).expect(204)
    changed: dict[str, Any] = {field: value}
    assert (await system.edit(**changed)).status == 204
    assert await application(system) == APPLICATION | changed
    reset: dict[str, Any] = {field: default}
    assert (await system.edit(**reset)).status == 204
    assert await application(system) == APPLICATION


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stopSignal", "SIGKILL"),
        ("stopSignal", "SIGSTOP"),
        ("stopSignal", "SIGNONE"),
        ("stopSignal", 15),
        ("stopGrace", -1),
        ("stopGrace", 3601),
        ("stopGrace", 1.5),
        ("capabilities", "CHOWN"),
        ("capabilities", ["CHOWN"] * 10),
        ("init", "tini"),
        ("init", True),
        ("contiguous", "yes"),
        ("contiguous", 1),
        ("playerEvents", 1),
    ],
)
async def test_bad_additions_to_the_interface_are_refused(
    system: System, field: str, value: object
) -> None:
    changes: dict[str, Any] = {field: value}
    assert_error(await system.edit(**changes), 422, field)
    assert await application(system) == APPLICATION
