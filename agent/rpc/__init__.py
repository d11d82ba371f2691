"""AgentService: protobuf in and out, mutual TLS, enrolment."""
