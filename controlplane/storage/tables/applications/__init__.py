"""Applications, their tags, registries and warm pools."""
