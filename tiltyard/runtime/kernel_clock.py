"""Whether the kernel counts the wall clock as synchronised."""

import ctypes
import os

_UNSYNCHRONISED = 0x0040  # STA_UNSYNC of adjtimex(2)


class _Timex(ctypes.Structure):
    """The beginning of `struct timex`; with `modes` 0 the kernel only fills it in."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("largest_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def kernel_is_synchronised() -> bool:
    """Return whether the kernel counts the wall clock as synchronised; may raise OSError."""
    timex = _Timex()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return not timex.status & _UNSYNCHRONISED
