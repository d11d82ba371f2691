/* The kernel's numbers of errors and signals, the same on x86-64 and aarch64; hosted builds, which
 * the tests make, have them from their C library. */
#ifndef TILTYARD_ERRORS_H
#define TILTYARD_ERRORS_H

#if __STDC_HOSTED__
#include <errno.h>
#include <signal.h>
#else
enum {
	ENOENT = 2, EINTR = 4, E2BIG = 7, ENOEXEC = 8, ECHILD = 10, EAGAIN = 11, ENOMEM = 12,
	EACCES = 13, ENODEV = 19, ENOTDIR = 20, ENFILE = 23, EMFILE = 24, EPROTO = 71, ETIMEDOUT = 110,
	ESTALE = 116,
};
enum {
	SIGILL = 4, SIGTRAP = 5, SIGABRT = 6, SIGBUS = 7, SIGFPE = 8, SIGKILL = 9, SIGSEGV = 11,
	SIGCHLD = 17, SIGCONT = 18, SIGSTOP = 19, SIGTSTP = 20, SIGTTIN = 21, SIGTTOU = 22,
	SIGURG = 23, SIGSYS = 31,
};
#endif

#endif
