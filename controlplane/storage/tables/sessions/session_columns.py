"""The values of columns of the table `session`, and the columns of its subjects."""

import json
from collections.abc import Iterable, Mapping

from controlplane.domain.hosts.contract import Port

SUBJECT = "account, id, application, tag, location, labels, traceparent"
"""The columns of `SessionSubject`."""

_SORTED = json.JSONEncoder(sort_keys=True)


def port_values(ports: Iterable[Port]) -> list[dict[str, object]]:
    """Return the JSON values of ports."""
    return [
        {"container": p.container, "protocol": p.protocol, "host": p.host, "tls": p.tls}
        for p in ports
    ]


def env_json(env: Mapping[str, str]) -> str:
    """Serialize injected variables; sorted, since the order of a protobuf map varies."""
    return _SORTED.encode(env)
