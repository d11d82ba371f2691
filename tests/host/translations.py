"""Print as JSON what the kernel translates; runs inside a machine, with the agent's Python."""

import json
import socket
import sys

from agent.network.sources.nat_table import NatTable

PROTOCOLS = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp"}

found = [
    [
        socket.inet_ntoa(private.address),
        f"{private.port}/{PROTOCOLS[private.protocol]}",
        socket.inet_ntoa(public.address),
        public.port,
    ]
    for private, public in (NatTable().read() or {}).items()
]
json.dump(found, sys.stdout)
