"""How one call leads to the next, for the OpenAPI document: by operation, what it is followed by.

A link holds whenever the operation succeeds, so none leads from the first item of a list: it may
be empty. Its values are OpenAPI's runtime expressions: parts of the request or of the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SESSION = "$response.body#/id"
_APPLICATION = "$request.body#/name"


@dataclass(frozen=True, slots=True)
class Link:
    """What can be called next, and what of it is known by then: parameters, or the whole body."""

    target: str
    parameters: Mapping[str, str]
    body: Any = None

    def described(self) -> dict[str, Any]:
        """Write it as an OpenAPI link."""
        link: dict[str, Any] = {"operationId": self.target}
        if self.parameters:
            link["parameters"] = dict(self.parameters)
        if self.body is not None:
            link["requestBody"] = self.body
        return link


# fmt: off
LINKS: Mapping[str, tuple[Link, ...]] = {
    "start_session": (
        Link("get_session", {"id": _SESSION}),
        Link("stop_session", {"id": _SESSION}),
        Link("stream_logs", {"id": _SESSION}),
        Link("get_report", {"id": _SESSION}),
        Link("fetch_artifact", {"session": _SESSION}),
        Link("join_players", {}, {"session": _SESSION, "players": ["player-1", "player-2"]}),
        Link("leave_players", {}, {"session": _SESSION, "players": ["player-1"]}),
        Link("available_locations", {"image": "$request.body#/image"}),
    ),
    "stop_session": (
        Link("get_session", {"id": "$request.path.id"}),
        Link("stream_logs", {"id": "$request.path.id"}),
        Link("get_report", {"id": "$request.path.id"}),
        Link("fetch_artifact", {"session": "$request.path.id"}),
    ),
    "join_players": (
        Link("leave_players", {},
             {"session": "$request.body#/session", "players": "$response.body#/players"}),
        Link("get_session", {"id": "$request.body#/session"}),
    ),
    "create_application": (
        Link("edit_application", {"name": _APPLICATION}),
        Link("enable_tag", {"name": _APPLICATION}),
        Link("list_available_tags", {"name": _APPLICATION}),
        Link("available_locations", {"image": _APPLICATION}),
        Link("set_warm_pool", {"image": _APPLICATION, "location": "$request.body#/regions/0"}),
    ),
    "set_warm_pool": (
        Link("remove_warm_pool",
             {"image": "$request.path.image", "location": "$request.path.location"}),
    ),
    "enable_tag": (
        Link("tag_exists", {"image": "$request.path.name", "version": "$request.body#/tag"}),
    ),
    "create_region": (
        Link("remove_region", {"region": "$request.path.region"}),
    ),
    "set_node_pool": (
        Link("remove_node_pool", {"nodePool": "$request.path.nodePool"}),
    ),
    "set_registry": (
        Link("remove_registry", {"registry": "$request.path.registry"}),
    ),
    "create_account": (
        Link("edit_account", {"account": "$response.body#/name"}),
        Link("remove_account", {"account": "$response.body#/name"}),
        Link("list_tokens", {"account": "$response.body#/name"}),
    ),
    "create_token": (
        Link("revoke_token", {"id": "$response.body#/id"}),
    ),
}
# fmt: on
