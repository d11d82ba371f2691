"""Shapes of prepared containers on their way: orders to an agent, and its reports."""

from dataclasses import replace
from typing import Any

import pytest

from agent.rpc import wire as agent_wire
from controlplane.agent_rpc import wire as controlplane_wire
from controlplane.agent_rpc.reports import watch_messages_in
from controlplane.domain.hosts.contract import HostReport
from tests.contract.test_agent_service import refused
from tests.support.agent.samples import IMAGE, a_spec
from tests.support.controlplane.agent_answers import host_of
from tiltyard.agent.bounds import MAX_SENTENCE
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import (
    Identity,
    NetworkMode,
    PortRequest,
    PreparedShape,
    Protocol,
    Resources,
    SessionSpec,
    shape_key,
)


def shape_of(**changes: Any) -> SessionSpec:
    shape = a_spec(**changes).shape
    assert shape is not None
    return shape


SHAPES = (
    shape_of(),
    shape_of(network_mode=NetworkMode.HOST, disk_bytes=2**30),
    shape_of(ports=(PortRequest(443, Protocol.TCP, tls=True), PortRequest(7777, Protocol.UDP))),
    shape_of(ports=(PortRequest(7777, Protocol.UDP, same=True),), contiguous=True),
)
GPU = Resources(nano_cpus=10**9, memory_bytes=2**26, gpus=1)
ANYBODY = Identity("", "", "", "", "")


def order_of(*shapes: SessionSpec) -> pb.SetShapesRequest:
    return controlplane_wire.shapes_out(shapes)


def test_an_agent_reads_the_shapes_that_a_control_plane_sends() -> None:
    sent = order_of(*SHAPES).SerializeToString()
    assert agent_wire.shapes_from_proto(pb.SetShapesRequest.FromString(sent)) == SHAPES


def test_both_programs_derive_the_same_key_from_a_shape() -> None:
    sent = order_of(*SHAPES).SerializeToString()
    read = agent_wire.shapes_from_proto(pb.SetShapesRequest.FromString(sent))
    assert [shape_key(shape) for shape in read] == [shape_key(shape) for shape in SHAPES]


async def test_an_agent_takes_an_order_of_shapes(stub: Any) -> None:
    assert await stub.SetShapes(order_of(*SHAPES)) == pb.SetShapesResponse()


@pytest.mark.parametrize(
    "spec",
    [
        a_spec(),
        replace(SHAPES[0], args=("-x",)),
        replace(SHAPES[0], env={"A": "b"}),
        replace(SHAPES[0], restart=True),
        replace(SHAPES[0], ttl=60.0),
        replace(SHAPES[0], reservation=GPU, limits=GPU),
        replace(SHAPES[0], ports=(PortRequest(7777, Protocol.UDP, pinned=20_777),)),
        replace(SHAPES[0], identity=ANYBODY),
        replace(SHAPES[0], image="game:latest"),
        replace(SHAPES[0], limits=Resources(nano_cpus=1, memory_bytes=1)),
    ],
    ids=[
        "identity",
        "args",
        "env",
        "restart",
        "ttl",
        "gpu",
        "pinned port",
        "no account",
        "tag instead of a digest",
        "limits below the reservation",
    ],
)
async def test_an_agent_refuses_what_is_no_shape(stub: Any, spec: SessionSpec) -> None:
    assert await refused(stub.SetShapes(order_of(SHAPES[1], spec))) == "INVALID_ARGUMENT"


def reported(shapes: list[PreparedShape]) -> HostReport:
    """Return what a control plane reads in the report of a host with these shapes."""
    host = host_of("one")
    host.prepared.extend(agent_wire.prepared_to_proto(shapes))
    sent = pb.WatchResponse(host=host).SerializeToString()
    [message] = watch_messages_in(pb.WatchResponse.FromString(sent), 0)
    assert isinstance(message.event, HostReport)
    return message.event


def test_a_control_plane_reads_the_prepared_containers_of_a_host() -> None:
    kept = PreparedShape("00ff", IMAGE, kept=3)
    failing = PreparedShape("11ee", IMAGE, kept=0, error="no such image")
    assert reported([kept, failing]).prepared == {"00ff": kept, "11ee": failing}


def test_a_long_cause_is_cut_to_what_a_control_plane_reads() -> None:
    found = reported([PreparedShape("00ff", IMAGE, kept=0, error="x" * 10_000)])
    assert found.prepared["00ff"].error == "x" * MAX_SENTENCE
