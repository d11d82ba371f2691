"""Rules of the firewall that lead free ports elsewhere, on a real engine."""

from tests.docker import frequent_looks
from tests.docker.machine import FIRST, Agent, Machine, Player, port_of
from tests.docker.stack import eventually
from tiltyard.agent.v1 import agent_pb2 as pb

NOBODY = "198.20.0.77:7777"  # An address of the engine's bridge that no container has
RULE = f"DOCKER ! -i docker0 -p udp -m udp --dport {FIRST} -j DNAT --to-destination {NOBODY}"
WARNING = f"lead free ports elsewhere (udp {FIRST} to {NOBODY})"


def warns(agent: Agent) -> bool:
    return any(WARNING in warning for warning in agent.warnings)


def test_f56_no_session_gets_a_port_until_the_rule_that_leads_it_elsewhere_is_gone(
    any_machine: Machine,
) -> None:
    # A prepared container would hold a port, too.
    agent = Agent(any_machine, ports=3, prepared=0, firewall_bridges=["docker0"])
    agent.program = frequent_looks.PROGRAM
    with agent:
        any_machine.run("iptables", "-w", "-t", "nat", "-A", *RULE.split())
        eventually(lambda: warns(agent), "the rule is reported")
        assert agent.refusal(pinned=FIRST) == "PORT_TAKEN"
        tcp = agent.play(pinned=FIRST, protocol=pb.PROTOCOL_TCP)
        others = [agent.play(), agent.play()]
        assert [port_of(session) for session in others] == [FIRST + 1, FIRST + 2]
        assert agent.refusal() == "NO_FREE_PORT"
        any_machine.run("iptables", "-w", "-t", "nat", "-D", *RULE.split())
        eventually(lambda: not warns(agent), "it is gone")
        session = agent.play()
        assert port_of(session) == FIRST
        with Player(any_machine, FIRST) as player:
            assert player.seen_as(session) == player.address
        agent.assert_ports_agree(tcp, *others, session)
