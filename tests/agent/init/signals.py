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
"""Signals that are forwarded to a program; without one they end nothing."""
EVERY = signal.valid_signals()  # Without two that C libraries keep for themselves
UNTOUCHABLE = {signal.SIGKILL, signal.SIGSTOP}
TAKES_SIGNALS = """
import os, signal, sys, threading
every = signal.valid_signals()
signal.pthread_sigmask(signal.SIG_BLOCK, every)
def end_with_input():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=end_with_input, daemon=True).start()
print("ready", flush=True)
while True:
    print(int(signal.sigwait(every)), flush=True)
"""
"""A program that prints the number of each signal that it gets.

No signal but SIGKILL ends the program, so it ends with its standard input: when its test closes
the pipe, or with the run of tests.
"""
