"""What the init does with each signal, beside forwarding it and ending by it."""

import signal

FAULTS = {
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGSEGV,
    signal.SIGSYS,
}
NOT_FORWARDED = FAULTS | {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCHLD,
    signal.SIGTTIN,
    signal.SIGTTOU,
}
ENDS_NO_WAIT = {signal.SIGCONT, signal.SIGTSTP, signal.SIGURG}
"""Forwarded to a program, but while there is none they end nothing."""
EVERY = signal.valid_signals()  # Without two that C libraries keep for themselves
UNTOUCHABLE = {signal.SIGKILL, signal.SIGSTOP}
TAKES_SIGNALS = """
import signal
every = signal.valid_signals()
signal.pthread_sigmask(signal.SIG_BLOCK, every)
print("ready", flush=True)
while True:
    print(int(signal.sigwait(every)), flush=True)
"""
"""A program that prints the number of each signal that it gets."""
