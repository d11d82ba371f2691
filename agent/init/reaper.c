#include "reaper.h"

#include "errors.h"

/* An array of arrays, since pointers would have to be relocated when the program begins. */
static const char CAUSES[][16] = {
	[MISSING] = "missing",
	[INTERPRETER] = "interpreter",
	[PERMISSION] = "permission",
	[ARCHITECTURE] = "architecture",
	[LENGTH] = "length",
	[RESOURCES] = "resources",
	[HANDOVER] = "handover",
	[OTHER] = "other",
};

static enum cause cause_of(int error, bool exists, bool is_elf)
{
	switch (error) {
	case ENOENT:
		return exists ? INTERPRETER : MISSING;
	case ENOTDIR: case ESTALE: case ENODEV: case ETIMEDOUT: /* of network file systems, too */
		return MISSING;
	case EACCES:
		return PERMISSION;
	case ENOEXEC:
		return is_elf ? ARCHITECTURE : OTHER;
	case E2BIG:
		return LENGTH;
	case EAGAIN: case ENOMEM: case ENFILE: case EMFILE:
		return RESOURCES;
	case EPROTO:
		return HANDOVER;
	default:
		return OTHER;
	}
}

struct refusal refuse(int error, bool exists, bool is_elf)
{
	return (struct refusal){.error = error, .cause = cause_of(error, exists, is_elf)};
}

bool is_forwarded(int signal)
{
	switch (signal) {
	case SIGILL: case SIGTRAP: case SIGABRT: case SIGBUS: case SIGFPE: case SIGSEGV:
	case SIGSYS: case SIGKILL: case SIGSTOP: case SIGCHLD: case SIGTTIN: case SIGTTOU:
		return false;
	default:
		return true;
	}
}

bool asks_to_wait(int signal, uint32_t sender)
{
	return signal == WAIT_FOR_ALL && sender == 0;
}

bool ends_wait(int signal)
{
	return is_forwarded(signal) && signal != SIGCONT && signal != SIGTSTP && signal != SIGURG;
}

int exit_code(uint32_t status)
{
	uint32_t signal = status & 0x7f;
	return (int)(signal ? 128 + signal : status >> 8 & 0xff);
}

int exit_code_of(struct refusal refusal)
{
	switch (refusal.cause) {
	case MISSING: case INTERPRETER:
		return 127;
	case RESOURCES: case HANDOVER:
		return FAILED;
	default:
		return 126;
	}
}

bool has_refused(const char *events, size_t length)
{
	static const char KEY[] = "max ";
	size_t i = 0;
	while (i < sizeof(KEY) - 1 && i < length && events[i] == KEY[i])
		i++;
	return i == sizeof(KEY) - 1 && i < length && events[i] >= '1' && events[i] <= '9';
}

static size_t append(char *line, size_t length, const char *text)
{
	while (*text)
		line[length++] = *text++;
	return length;
}

static size_t append_number(char *line, size_t length, uint64_t number)
{
	char digits[20]; /* Of 2^64 - 1, the last one first */
	size_t count = 0;
	do {
		digits[count++] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	while (count)
		line[length++] = digits[--count];
	return length;
}

size_t describe_refusal(char *line, struct refusal refusal)
{
	size_t length = append(line, 0, "refused ");
	length = append_number(line, length, (uint32_t)refusal.error);
	length = append(line, length, " ");
	length = append(line, length, CAUSES[refusal.cause]);
	return append(line, length, "\n");
}

size_t describe_end(char *line, uint32_t status, uint64_t nanoseconds, struct limits met)
{
	size_t length = append(line, 0, "ended ");
	length = append_number(line, length, status);
	length = append(line, length, " ");
	length = append_number(line, length, nanoseconds);
	if (met.pids)
		length = append(line, length, " pids");
	if (met.shm)
		length = append(line, length, " shm");
	return append(line, length, "\n");
}
