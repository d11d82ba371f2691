"""Applications, their tags and images, warm pools, and what hosts pulled. Pure."""
