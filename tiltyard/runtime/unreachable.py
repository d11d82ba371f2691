"""Describes why an HTTP connection failed."""

import os
import socket
import ssl

import aiohttp


def why(error: BaseException) -> str:
    """Describe an error without the address."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):  # its text has internal details
        error = error.os_error
    if isinstance(error, OSError) and error.strerror:
        if isinstance(error, ssl.SSLError | socket.gaierror):  # their errno is not the OS's
            return error.strerror
        return os.strerror(error.errno) if error.errno else error.strerror
    return str(error) or type(error).__name__
