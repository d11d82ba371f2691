"""Why an HTTP connection failed, in the words of the system."""

import os
import socket
import ssl

import aiohttp


def why(error: BaseException) -> str:
    """Describe the error without the address, which the caller adds."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):  # its own text is full of inner things
        error = error.os_error
    if isinstance(error, OSError) and error.strerror:
        if isinstance(error, ssl.SSLError | socket.gaierror):  # with numbers of their own
            return error.strerror
        return os.strerror(error.errno) if error.errno else error.strerror
    return str(error) or type(error).__name__
