"""Tiltyard's wire contracts, generated from the .proto files beside them."""
