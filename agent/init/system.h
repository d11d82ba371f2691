/* The kernel's interface: system calls of x86-64 and aarch64, without a C library.
 *
 * Calls return a negative error number if they fail. Numbers and structures are those of the
 * kernel's stable interface; no kernel headers are needed, which a cross compiler may lack.
 */
#ifndef TILTYARD_SYSTEM_H
#define TILTYARD_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
enum {
	SYS_read = 0, SYS_write = 1, SYS_close = 3, SYS_mmap = 9, SYS_rt_sigaction = 13,
	SYS_rt_sigprocmask = 14, SYS_ioctl = 16, SYS_getpid = 39, SYS_clone = 56, SYS_execve = 59,
	SYS_wait4 = 61, SYS_kill = 62, SYS_getuid = 102, SYS_setpgid = 109, SYS_prctl = 157,
	SYS_statfs = 137, SYS_clock_gettime = 228, SYS_exit_group = 231, SYS_openat = 257,
	SYS_faccessat = 269, SYS_ppoll = 271, SYS_signalfd4 = 289, SYS_pipe2 = 293,
	SYS_close_range = 436,
};
#define O_DIRECTORY 0200000
#elif defined(__aarch64__)
enum {
	SYS_ioctl = 29, SYS_statfs = 43, SYS_faccessat = 48, SYS_openat = 56, SYS_close = 57,
	SYS_pipe2 = 59,
	SYS_read = 63, SYS_write = 64, SYS_ppoll = 73, SYS_signalfd4 = 74, SYS_exit_group = 94,
	SYS_clock_gettime = 113, SYS_kill = 129, SYS_rt_sigaction = 134, SYS_rt_sigprocmask = 135,
	SYS_setpgid = 154, SYS_prctl = 167, SYS_getpid = 172, SYS_getuid = 174, SYS_clone = 220,
	SYS_execve = 221, SYS_mmap = 222, SYS_wait4 = 260, SYS_close_range = 436,
};
#define O_DIRECTORY 040000
#else
#error "tiltyard-init runs on x86-64 and aarch64"
#endif

#define AT_FDCWD (-100)
#define O_RDONLY 0
#define O_RDWR 2
#define O_NONBLOCK 04000
#define O_CLOEXEC 02000000
#define O_PATH 010000000
#define F_OK 0
#define PROT_READ_WRITE 3
#define MAP_PRIVATE_ANONYMOUS 0x22
#define TIOCSPGRP 0x5410
#define PR_SET_DUMPABLE 4
#define PR_SET_NAME 15
#define CLOCK_REALTIME 0
#define WNOHANG 1
#define POLLIN 1
#define SIG_SETMASK 2

struct pollfd {
	int fd; /* Negative: none */
	short events;
	short revents;
};

struct timespec {
	int64_t seconds;
	int64_t nanoseconds;
};

struct file_system {
	uint64_t type;
	uint64_t block_bytes;
	uint64_t blocks; /* 0: it has no limit */
	uint64_t free_blocks;
	uint64_t others[11]; /* The kernel's statfs has 120 bytes */
};

/* Arguments are passed as they are: pointers and numbers have the size of a register. */
#define CALL(...) CALL_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define CALL_(number, a, b, c, d, e, f, ...) \
	system_call((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline long system_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long result;
	register long fourth __asm__("r10") = d;
	register long fifth __asm__("r8") = e;
	register long sixth __asm__("r9") = f;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "rcx", "r11", "memory");
	return result;
#else
	register long which __asm__("x8") = number;
	register long first __asm__("x0") = a;
	register long second __asm__("x1") = b;
	register long third __asm__("x2") = c;
	register long fourth __asm__("x3") = d;
	register long fifth __asm__("x4") = e;
	register long sixth __asm__("x5") = f;
	__asm__ volatile("svc 0"
			 : "+r"(first)
			 : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "memory", "cc");
	return first;
#endif
}

__attribute__((noreturn)) static inline void exit_with(int code)
{
	for (;;)
		CALL(SYS_exit_group, code);
}

#endif
