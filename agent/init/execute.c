#include "execute.h"

#include "errors.h"
#include "handover.h"
#include "system.h"

enum { PATH_BYTES = 4096 }; /* The kernel's limit of a path with its NUL */

static const char SHELL[] = "/bin/sh";
static const char DEFAULT_PATH[] = "/bin:/usr/bin";

static bool is_elf(const char *file)
{
	char found[4] = {0};
	long opened = CALL(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (opened < 0)
		return false;
	CALL(SYS_read, opened, found, sizeof(found));
	CALL(SYS_close, opened);
	return found[0] == 0x7f && found[1] == 'E' && found[2] == 'L' && found[3] == 'F';
}

/* Lets the shell run a script that does not name its interpreter; returns the error. */
static int run_script(const char *file, char **arguments, char **environment)
{
	char *name = arguments[0];
	arguments[-1] = (char *)SHELL;
	arguments[0] = (char *)file;
	int error = (int)-CALL(SYS_execve, SHELL, arguments - 1, environment);
	arguments[0] = name;
	return error;
}

static struct refusal attempt(const char *file, char **arguments, char **environment)
{
	int error = (int)-CALL(SYS_execve, file, arguments, environment);
	bool program = error == ENOEXEC && is_elf(file);
	if (error == ENOEXEC && !program)
		error = run_script(file, arguments, environment);
	bool exists = error == ENOENT && CALL(SYS_faccessat, AT_FDCWD, file, F_OK) == 0;
	return refuse(error, exists, program);
}

static size_t length_to(const char *text, char end)
{
	size_t length = 0;
	while (text[length] && text[length] != end)
		length++;
	return length;
}

/* Writes `folder/name`, or `name` for an empty folder; false if that is too long for the kernel. */
static bool join(char *path, const char *folder, size_t length, const char *name)
{
	size_t name_bytes = length_to(name, '\0') + 1;
	if (length + 1 + name_bytes > PATH_BYTES)
		return false;
	for (size_t i = 0; i < length; i++)
		*path++ = folder[i];
	if (length)
		*path++ = '/';
	for (size_t i = 0; i < name_bytes; i++)
		*path++ = name[i];
	return true;
}

struct refusal execute(char **arguments, char **environment)
{
	const char *name = arguments[0];
	struct refusal refusal = refuse(ENOENT, false, false);
	if (!*name)
		return refusal;
	if (name[length_to(name, '/')])
		return attempt(name, arguments, environment);
	const char *found = find_variable(environment, "PATH");
	const char *path = found ? found + sizeof("PATH=") - 1 : DEFAULT_PATH;
	for (;;) {
		char file[PATH_BYTES];
		size_t length = length_to(path, ':');
		if (join(file, path, length, name)) {
			struct refusal latest = attempt(file, arguments, environment);
			if (latest.cause > PERMISSION)
				return latest;
			if (latest.cause >= refusal.cause)
				refusal = latest;
		}
		if (!path[length])
			return refusal;
		path += length + 1;
	}
}
