"""Use cases of operators: accounts, hosts, regions, placement, enrolment, rotation."""
