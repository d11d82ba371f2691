from agent.domain.engine import LABEL_PREPARED, prepared_name
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import Host
from tests.support.agent.keeping import kept_prepared, waiting
from tests.support.agent.samples import a_spec
from tests.support.fake_clock import until_idle
from tiltyard.contract import PreparedShape, Protocol, shape_key

SHAPE = a_shape()
KEY = shape_key(SHAPE)


async def test_keeps_one_of_an_ordered_shape(host: Host) -> None:
    async with host(prepared=4) as agent, kept_prepared(agent) as keeper:
        keeper.set_shapes([SHAPE])
        await until_idle()
        [found] = waiting(agent)
        assert found.name == prepared_name(found.labels[LABEL_PREPARED])
        assert keeper.shapes == [PreparedShape(KEY, SHAPE.image, 1)]
        assert keeper.stock.held_ports(Protocol.UDP) == 1


async def test_gives_each_container_to_one_start(host: Host) -> None:
    async with host(prepared=4) as agent, kept_prepared(agent) as keeper:
        keeper.set_shapes([SHAPE])
        await until_idle()
        taken = keeper.take(a_spec())
        assert taken is not None
        assert taken.container.container == waiting(agent)[0].container
        assert keeper.take(a_spec()) is None
        keeper.put_back(taken)
        assert keeper.take(a_spec()) == taken


async def test_gives_none_to_another_account(host: Host) -> None:
    async with host(prepared=4) as agent, kept_prepared(agent) as keeper:
        keeper.set_shapes([SHAPE])
        await until_idle()
        assert keeper.take(a_shape("other")) is None
