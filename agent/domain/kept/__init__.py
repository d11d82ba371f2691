"""The containers that a host keeps in advance: prepared ones and standbys. Pure."""
