"""Keys and certificates: the certificate authority, and tickets for starts."""
