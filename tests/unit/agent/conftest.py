"""An agent whose engine and clock are in memory."""

from tests.support.agent.fixtures import agent, clock, engine, full_while, host, next_run, survived

__all__ = ["agent", "clock", "engine", "full_while", "host", "next_run", "survived"]
