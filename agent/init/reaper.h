/* Decisions of a first process about signals, ends and refusals, and the lines that report them.
 *
 * Pure: no system calls, no globals.
 */
#ifndef TILTYARD_REAPER_H
#define TILTYARD_REAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit code if a hand-over is broken, or the first process itself fails, as of `docker run` */
enum { FAILED = 125 };

/* The longest line of a report with its newline; the kernel writes it in one piece. */
enum { LINE_BYTES = 64 };

/* Why a program was not executed. After the first three, another file of its name in PATH may be
 * executed instead; if there is none, the greatest of the causes counts. */
enum cause {
	MISSING,      /* There is no such file */
	INTERPRETER,  /* The file is there, and the program that it needs is not */
	PERMISSION,   /* It is not executable */
	ARCHITECTURE, /* It is a program for other machines */
	LENGTH,       /* Arguments and environment are too long */
	RESOURCES,    /* The kernel is short of memory, processes or files */
	HANDOVER,     /* The hand-over is broken, or cannot be received */
	OTHER,
};

/* `error`: number of the kernel, 0 if nothing was refused. */
struct refusal {
	int32_t error;
	int32_t cause;
};

/* Evaluates the error of an execution. `exists`: the file is there. `is_elf`: it is a program. */
struct refusal refuse(int error, bool exists, bool is_elf);

/* Whether a signal is passed on to the program. Those are not that the kernel raises for a fault of
 * the first process, nor those about its own children and terminal. */
bool is_forwarded(int signal);

/* The signal by which an agent asks a first process to outlive its program, until all processes of
 * the container have ended. C libraries keep it for their threads: programs cannot send it. */
enum { WAIT_FOR_ALL = 33 };

/* Whether a signal asks for that. `sender`: a process id, 0 for one outside of the container. */
bool asks_to_wait(int signal, uint32_t sender);

/* Whether a signal ends a first process that has no program yet. Any may be an image's STOPSIGNAL,
 * but those that stop and continue processes, and out-of-band data. */
bool ends_wait(int signal);

/* The exit code that stands for the wait status of an ended program. */
int exit_code(uint32_t status);

/* The exit code that stands for a program that was not executed. */
int exit_code_of(struct refusal refusal);

/* Limits of the container that its program has met. */
struct limits {
	bool pids; /* It could not have another process or thread */
	bool shm;  /* There is no room in /dev/shm */
};

/* Whether a control group's pids.events says that a process was refused. */
bool has_refused(const char *events, size_t length);

/* Write a line of at most LINE_BYTES without a NUL, and return its length. */
size_t describe_refusal(char *line, struct refusal refusal);
size_t describe_end(char *line, uint32_t status, uint64_t nanoseconds, struct limits met);

#endif
