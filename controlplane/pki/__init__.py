"""Keys and certificates: the authority of a deployment, and tickets for starts."""
