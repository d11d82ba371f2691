"""What a host keeps in advance: prepared containers and standbys. Pure."""
