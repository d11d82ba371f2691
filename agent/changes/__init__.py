"""Changes of a host, and who watches them."""
