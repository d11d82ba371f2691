"""Validates CA certificates that operators supply as PEM text."""

import ssl

MAX_CHARACTERS = 64 * 1024  # About forty authorities; a registry has one or two

_NOT_CERTIFICATES = "must be certificates as PEM text"


def check_authorities(pem: str) -> None:
    """Check that a TLS client can load this PEM text as CA certificates. Takes milliseconds.

    Raises:
        ValueError: Not certificates only.
    """
    if len(pem) > MAX_CHARACTERS:
        raise ValueError(f"must be at most {MAX_CHARACTERS} characters")
    if "PRIVATE KEY-----" in pem:  # OpenSSL ignores it, and the API returns the text
        raise ValueError("contains a private key: only certificates are needed")
    if not pem.isascii() or not pem.strip():  # for an empty text OpenSSL loads the system's CAs
        raise ValueError(_NOT_CERTIFICATES)
    try:
        ssl.create_default_context(cadata=pem)
    except ssl.SSLError as error:
        raise ValueError(_NOT_CERTIFICATES) from error
