"""Calls to agents: gRPC and protobuf end here."""
