"""Ports in the bodies of applications."""

import operator
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import PortNumber
from controlplane.api.operations.shown import Shown, at
from controlplane.applications.applications import MAX_PORTS
from tiltyard.contract import PortRequest, Protocol


class PortBindingBody(Body):
    """A port that the application listens on.

    `same`: it listens on the host port of each session, which its environment has, and `requested`
    only names the port. Not with `tls`.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "not": {
                "anyOf": [
                    {"properties": {"protocol": {"const": "udp"}, "tls": {"const": True}}},
                    {
                        "properties": {"tls": {"const": True}, "same": {"const": True}},
                        "required": ["same"],
                    },
                ]
            }
        }
    )

    requested: PortNumber
    protocol: Literal["tcp", "udp"]
    tls: bool
    same: bool | None = None

    @field_validator("tls")
    @classmethod
    def _tls_is_tcp(cls, tls: bool, info: ValidationInfo) -> bool:
        if tls and info.data.get("protocol") == "udp":
            raise ValueError("needs protocol tcp")
        return tls

    @field_validator("same")
    @classmethod
    def _same_is_plain(cls, same: bool | None, info: ValidationInfo) -> bool | None:
        if same and info.data.get("tls"):
            raise ValueError("must not be true with tls: the host listens on that port")
        return same

    def port(self) -> PortRequest:
        """Convert to a port of an application."""
        protocol = Protocol(self.protocol)
        return PortRequest(self.requested, protocol, self.tls, same=bool(self.same))


def _each_once(ports: list[PortBindingBody]) -> list[PortBindingBody]:
    pairs = [(port.requested, port.protocol) for port in ports]
    if len(set(pairs)) != len(pairs):
        raise ValueError("a port and protocol may be declared once")
    return ports


Ports = Annotated[list[PortBindingBody], Field(max_length=MAX_PORTS), AfterValidator(_each_once)]


class ListedPort(Shown):
    """A port that the application listens on."""

    requested: int = at("container")
    protocol: Literal["tcp", "udp"] = at("protocol.value")
    tls: bool
    same: Annotated[bool, Field(exclude_if=operator.not_)]
