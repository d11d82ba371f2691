/* tiltyard-init: the first process of a container.
 *
 *     tiltyard-init FOLDER    waits for a hand-over in FOLDER/start, and reports to FOLDER/report
 *     tiltyard-init --check   exits with 0: this machine executes it
 *
 * It waits until an agent hands over arguments and environment, runs them as a child or in its own
 * place, passes signals on, buries orphans and ends with the child. Its name in /proc shows its
 * state. docs/architecture.md describes the protocol; handover.h and reaper.h have the decisions.
 */
#include "errors.h"
#include "execute.h"
#include "handover.h"
#include "home.h"
#include "reaper.h"
#include "system.h"

enum {
	LAST_SIGNAL = 64,
	SIGNAL_SET_BYTES = 8,
	SIGNAL_INFO_BYTES = 128, /* What a signalfd yields for a signal */
};

/* A descriptor that is not open is -1. */
struct init {
	int start;
	int report;
	int signals;
	int outcome; /* Of the child: whether it executes the program */
	long child;
	bool waits_for_all;     /* It outlives its child until all processes have ended */
	bool has_ended;         /* The child, with `status` */
	uint32_t status;
	bool is_begun;          /* The child was about to execute the program */
	struct refusal refusal; /* It could not */
	char **environment;
};

/* What to execute; the slot before the first argument is free. */
struct program {
	char **arguments;
	char **environment;
};

static const struct refusal NONE = {0};

/* --- what others see ---------------------------------------------------------------------- */

static void show_state(const char *name)
{
	CALL(SYS_prctl, PR_SET_NAME, name);
}

/* A report that nobody reads is lost: nothing here waits for a reader. */
static void report(const struct init *init, const char *line, size_t length)
{
	CALL(SYS_write, init->report, line, length);
}

static void report_refusal(const struct init *init, struct refusal refusal)
{
	char line[LINE_BYTES];
	report(init, line, describe_refusal(line, refusal));
}

/* What the program has unlinked is gone with it: then there is room again. */
static bool is_full(const char *folder)
{
	struct file_system found = {0};
	return CALL(SYS_statfs, folder, &found) == 0 && found.blocks > 0 && found.free_blocks == 0;
}

/* The control group is read here since it goes with this process. */
static bool has_refused_in(const char *path)
{
	char events[32];
	long file = CALL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return false;
	long length = CALL(SYS_read, file, events, sizeof(events));
	CALL(SYS_close, file);
	return length > 0 && has_refused(events, (size_t)length);
}

static void report_end(const struct init *init, uint32_t status)
{
	struct timespec now = {0};
	char line[LINE_BYTES];
	struct limits met = {
		/* Of cgroup v2, and of v1 */
		.pids = has_refused_in("/sys/fs/cgroup/pids.events") ||
			has_refused_in("/sys/fs/cgroup/pids/pids.events"),
		.shm = is_full("/dev/shm"),
	};
	CALL(SYS_clock_gettime, CLOCK_REALTIME, &now);
	uint64_t nanoseconds = (uint64_t)now.seconds * 1000000000u + (uint64_t)now.nanoseconds;
	report(init, line, describe_end(line, status, nanoseconds, met));
}

__attribute__((noreturn)) static void end_refused(const struct init *init, struct refusal refusal)
{
	report_refusal(init, refusal);
	exit_with(exit_code_of(refusal));
}

/* --- signals and children ----------------------------------------------------------------- */

/* All signals are blocked, and those that are passed on are read from a descriptor. */
static int collect_signals(void)
{
	uint64_t all = ~(uint64_t)0;
	uint64_t collected = 0;
	for (int signal = 1; signal <= LAST_SIGNAL; signal++)
		if (is_forwarded(signal) || signal == SIGCHLD)
			collected |= (uint64_t)1 << (signal - 1);
	CALL(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, SIGNAL_SET_BYTES);
	return (int)CALL(SYS_signalfd4, -1, &collected, SIGNAL_SET_BYTES, O_CLOEXEC | O_NONBLOCK);
}

/* A program begins with the default action of each signal, and none blocked. */
static void reset_signals(void)
{
	/* The kernel's sigaction: SIG_DFL, no flags, no restorer, no mask. */
	const uint64_t action[4] = {0};
	const uint64_t none = 0;
	for (int signal = 1; signal <= LAST_SIGNAL; signal++)
		CALL(SYS_rt_sigaction, signal, action, NULL, SIGNAL_SET_BYTES);
	CALL(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, SIGNAL_SET_BYTES);
}

/* Returns a signal that has arrived, or 0. */
static int next_signal(struct init *init)
{
	/* The kernel's signalfd_siginfo. */
	union {
		struct {
			uint32_t number;
			int32_t error;
			int32_t code;
			uint32_t sender; /* 0 for a process outside of the container */
		};
		char bytes[SIGNAL_INFO_BYTES];
	} info;
	for (;;) {
		long size = CALL(SYS_read, init->signals, &info, sizeof(info));
		if (size != sizeof(info))
			return 0;
		if (!asks_to_wait((int)info.number, info.sender))
			return (int)info.number;
		init->waits_for_all = true;
	}
}

static void read_outcome(struct init *init)
{
	struct refusal message;
	long size;
	while ((size = CALL(SYS_read, init->outcome, &message, sizeof(message))) > 0) {
		if (message.error)
			init->refusal = message;
		else
			init->is_begun = true;
	}
	if (size != 0)
		return;
	CALL(SYS_close, init->outcome);
	init->outcome = -1;
	if (init->is_begun && !init->refusal.error) {
		show_state("tiltyard-run");
		report(init, "executed\n", 9);
	}
}

__attribute__((noreturn)) static void end_with_child(struct init *init, uint32_t status)
{
	if (init->outcome >= 0)
		read_outcome(init);
	if (init->refusal.error)
		end_refused(init, init->refusal);
	if (init->is_begun)
		report_end(init, status);
	else
		report_refusal(init, refuse(EINTR, false, false));
	exit_with(exit_code(status));
}

/* Buries all that have ended; orphans in a container become children of its first process. */
static void bury(struct init *init)
{
	int status;
	long pid;
	while ((pid = CALL(SYS_wait4, -1, &status, WNOHANG, NULL)) > 0) {
		if (pid != init->child || init->has_ended)
			continue;
		init->has_ended = true;
		init->status = (uint32_t)status;
	}
	if (init->has_ended && (!init->waits_for_all || pid == -ECHILD))
		end_with_child(init, init->status);
}

/* Waits until one of two descriptors is readable, or was closed at its other end. */
static void wait_for(struct pollfd *polled)
{
	long found;
	do
		found = CALL(SYS_ppoll, polled, 2, NULL, NULL, 0);
	while (found == -EINTR);
	if (found < 0)
		exit_with(FAILED);
}

/* --- the hand-over ------------------------------------------------------------------------ */

/* Waits for bytes of the hand-over or its writer's end. A first process that is stopped meanwhile
 * ends; a child does not look, since its signals have their default actions. */
static void wait_for_handover(struct init *init)
{
	for (;;) {
		struct pollfd polled[2] = {
			{.fd = init->start, .events = POLLIN},
			{.fd = init->signals, .events = POLLIN},
		};
		wait_for(polled);
		if (!polled[1].revents)
			return;
		int signal = next_signal(init);
		if (signal == SIGCHLD)
			bury(init);
		else if (signal && ends_wait(signal))
			exit_with(128 + signal);
	}
}

/* Reads as many bytes; false if the hand-over ends before. */
static bool receive(struct init *init, void *bytes, size_t size)
{
	char *next = bytes;
	while (size > 0) {
		wait_for_handover(init);
		long received = CALL(SYS_read, init->start, next, size);
		if (received == -EAGAIN || received == -EINTR)
			continue;
		if (received <= 0)
			return false;
		next += received;
		size -= (size_t)received;
	}
	return true;
}

/* Reads the strings of a hand-over, in whichever process executes them. */
static struct refusal receive_program(
	struct init *init, const struct header *header, struct program *program)
{
	size_t own = 0;
	while (init->environment[own])
		own++;
	size_t arguments = 1 + header->arguments + 1;
	size_t given = header->variables + 1;
	size_t merged = own + header->variables + 1 + 1; /* Maybe HOME */
	size_t size = (arguments + given + merged) * sizeof(char *);
	long room = CALL(SYS_mmap, NULL, size + header->bytes, PROT_READ_WRITE,
		MAP_PRIVATE_ANONYMOUS, -1, 0);
	if (room < 0 && room > -4096)
		return refuse((int)-room, false, false);
	char **pointers = (char **)room;
	char **variables = pointers + arguments;
	char *strings = (char *)room + size;
	program->arguments = pointers + 1;
	program->environment = variables + given;
	if (!receive(init, strings, header->bytes) ||
	    !parse_strings(header, strings, program->arguments, variables))
		return refuse(EPROTO, false, false);
	merge_variables(init->environment, variables, program->environment);
	set_home(variables, program->environment);
	return NONE;
}

__attribute__((noreturn)) static void run_in_place(struct init *init, const struct header *header)
{
	struct program program;
	struct refusal refusal = receive_program(init, header, &program);
	if (!refusal.error) {
		reset_signals();
		refusal = execute(program.arguments, program.environment);
	}
	end_refused(init, refusal);
}

/* The child: a process group of its own, in the foreground if there is a terminal. */
__attribute__((noreturn)) static void run_as_child(
	struct init *init, const struct header *header, int outcome)
{
	struct program program;
	CALL(SYS_setpgid, 0, 0);
	int group = (int)CALL(SYS_getpid);
	CALL(SYS_ioctl, 0, TIOCSPGRP, &group);
	reset_signals();
	init->signals = -1;
	struct refusal refusal = receive_program(init, header, &program);
	if (!refusal.error) {
		CALL(SYS_write, outcome, &NONE, sizeof(NONE));
		refusal = execute(program.arguments, program.environment);
	}
	CALL(SYS_write, outcome, &refusal, sizeof(refusal));
	exit_with(exit_code_of(refusal));
}

/* The one fork for a hand-over: whatever comes of it, nothing is executed a second time. */
static void begin_child(struct init *init, const struct header *header)
{
	int outcome[2];
	long error = CALL(SYS_pipe2, outcome, O_CLOEXEC | O_NONBLOCK);
	if (error < 0)
		end_refused(init, refuse((int)-error, false, false));
	init->child = CALL(SYS_clone, SIGCHLD);
	if (init->child == 0)
		run_as_child(init, header, outcome[1]);
	if (init->child < 0)
		end_refused(init, refuse((int)-init->child, false, false));
	init->outcome = outcome[0];
	CALL(SYS_close, outcome[1]);
	CALL(SYS_close, init->start);
	init->start = -1;
}

/* All signals that have arrived are read before ends are looked at: a request to wait for all
 * processes came before the signal that has ended the child. */
static void pass_signals_on(struct init *init)
{
	bool has_ended_children = false;
	int signal;
	while ((signal = next_signal(init))) {
		if (signal == SIGCHLD)
			has_ended_children = true;
		else if (!init->has_ended)
			CALL(SYS_kill, init->child, signal);
	}
	if (has_ended_children)
		bury(init);
}

__attribute__((noreturn)) static void accompany_child(struct init *init)
{
	for (;;) {
		struct pollfd polled[2] = {
			{.fd = init->outcome, .events = POLLIN},
			{.fd = init->signals, .events = POLLIN},
		};
		wait_for(polled);
		if (polled[0].revents)
			read_outcome(init);
		pass_signals_on(init);
	}
}

/* --- the program -------------------------------------------------------------------------- */

static void open_channel(struct init *init, const char *folder)
{
	long channel = CALL(SYS_openat, AT_FDCWD, folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* Also for reading, so that no reader is needed: its reports neither fail nor wait. */
	init->report = (int)CALL(SYS_openat, channel, "report", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	init->start = (int)CALL(SYS_openat, channel, "start", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (init->start < 0)
		end_refused(init, (struct refusal){.error = -init->start, .cause = HANDOVER});
	CALL(SYS_close, channel);
}

static bool is_same(const char *one, const char *other)
{
	for (; *one && *one == *other; one++)
		other++;
	return *one == *other;
}

__attribute__((noreturn)) static void run(const char *folder, char **environment)
{
	struct init init = {
		.start = -1, .report = -1, .outcome = -1, .child = -1, .environment = environment,
	};
	char bytes[HEADER_BYTES];
	struct header header;
	CALL(SYS_close_range, 3, ~0u, 0);
	/* Otherwise a program of the same user could trace this process. */
	CALL(SYS_prctl, PR_SET_DUMPABLE, 0);
	init.signals = collect_signals();
	if (init.signals < 0)
		exit_with(FAILED);
	open_channel(&init, folder);
	show_state("tiltyard-wait");
	report(&init, "waiting\n", 8);
	wait_for_handover(&init);
	show_state("tiltyard-hand");
	if (!receive(&init, bytes, sizeof(bytes)) || !parse_header(bytes, &header))
		end_refused(&init, refuse(EPROTO, false, false));
	if (header.in_place)
		run_in_place(&init, &header);
	begin_child(&init, &header);
	accompany_child(&init);
}

/* Compilers may call these two where a C library would have them. */
void *memset(void *bytes, int value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((char *)bytes)[i] = (char)value;
	return bytes;
}

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((char *)to)[i] = ((const char *)from)[i];
	return to;
}

/* `stack`: number of arguments, arguments, NULL, environment, NULL. */
__attribute__((noreturn, used)) static void begin(uintptr_t *stack)
{
	static const char USAGE[] = "usage: tiltyard-init FOLDER | --check\n";
	char **arguments = (char **)(stack + 1);
	char **environment = arguments + stack[0] + 1;
	if (stack[0] == 2 && is_same(arguments[1], "--check"))
		exit_with(0);
	if (stack[0] == 2)
		run(arguments[1], environment);
	CALL(SYS_write, 2, USAGE, sizeof(USAGE) - 1);
	exit_with(FAILED);
}

__asm__(".globl _start\n"
	"_start:\n"
#if defined(__x86_64__)
	"	xor %ebp, %ebp\n"
	"	mov %rsp, %rdi\n"
	"	and $-16, %rsp\n"
	"	call begin\n"
#else
	"	mov x29, #0\n"
	"	mov x30, #0\n"
	"	mov x0, sp\n"
	"	bl begin\n"
#endif
);
