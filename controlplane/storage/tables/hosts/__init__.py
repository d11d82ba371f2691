"""Hosts: their agents, enrolment, orders and exposure."""
