/* Preloaded: what is done to the files below DISK_LOG_FOLDER is written to DISK_LOG, in its order.
 *
 * A record is a `struct record`, the name of the file, and the bytes that were written or, of a
 * rename, the new name. A sync is written down before it is done: it covers what was written before
 * it began, no more.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE, TRUNCATE, SYNC, CREATE, REMOVE, MKDIR, RENAME };

struct record {
	uint32_t kind;
	uint32_t name_size;
	uint64_t offset; /* of a write; the new size for TRUNCATE */
	uint64_t size;
};

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void put(int log, const void *data, size_t size)
{
	if (NEXT(write)(log, data, size) != (ssize_t)size)
		abort();
}

/* The name of a path below the folder; NULL for any other. */
static const char *name_of(const char *path)
{
	const char *folder = getenv("DISK_LOG_FOLDER");
	size_t length = strlen(folder);

	if (strncmp(path, folder, length) || (path[length] && path[length] != '/'))
		return NULL;
	return path + length + (path[length] == '/');
}

static void note(const char *path, uint32_t kind, uint64_t offset, const void *data, uint64_t size)
{
	static int log = -1;
	struct record record = { kind, 0, offset, size };

	path = name_of(path);
	if (!path)
		return;
	record.name_size = strlen(path);
	pthread_mutex_lock(&one_at_a_time);
	if (log < 0)
		log = NEXT(open)(getenv("DISK_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	put(log, &record, sizeof record);
	put(log, path, record.name_size);
	put(log, data, size);
	pthread_mutex_unlock(&one_at_a_time);
}

static void note_open(int file, uint32_t kind, uint64_t offset, const void *data, uint64_t size)
{
	char link[64], path[PATH_MAX];
	int saved = errno;
	ssize_t length;

	snprintf(link, sizeof link, "/proc/self/fd/%d", file);
	length = readlink(link, path, sizeof path - 1);
	if (length > 0) {
		path[length] = 0;
		note(path, kind, offset, data, size);
	}
	errno = saved;
}

static int opened(int (*next)(const char *, int, ...), const char *path, int flags, mode_t mode)
{
	struct stat found;
	int is_new = (flags & O_CREAT) && stat(path, &found);
	int file = next(path, flags, mode);

	if (file >= 0 && is_new)
		note_open(file, CREATE, 0, "", 0);
	return file;
}

#define OPEN(name) \
	int name(const char *path, int flags, ...) \
	{ \
		va_list rest; \
		va_start(rest, flags); \
		mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
		va_end(rest); \
		return opened(NEXT(name), path, flags, mode); \
	}
OPEN(open)
OPEN(open64)

ssize_t write(int file, const void *data, size_t size)
{
	off_t offset = lseek(file, 0, SEEK_CUR);
	ssize_t done = NEXT(write)(file, data, size);

	if (offset >= 0 && done > 0)
		note_open(file, WRITE, offset, data, done);
	return done;
}

#define PWRITE(name, offset_type) \
	ssize_t name(int file, const void *data, size_t size, offset_type offset) \
	{ \
		ssize_t done = NEXT(name)(file, data, size, offset); \
		if (done > 0) \
			note_open(file, WRITE, offset, data, done); \
		return done; \
	}
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE_TO(name, size_type) \
	int name(int file, size_type size) \
	{ \
		int failed = NEXT(name)(file, size); \
		if (!failed) \
			note_open(file, TRUNCATE, size, "", 0); \
		return failed; \
	}
TRUNCATE_TO(ftruncate, off_t)
TRUNCATE_TO(ftruncate64, off64_t)

#define SYNC_OF(name) \
	int name(int file) \
	{ \
		note_open(file, SYNC, 0, "", 0); \
		return NEXT(name)(file); \
	}
SYNC_OF(fsync)
SYNC_OF(fdatasync)

int unlink(const char *path)
{
	int failed = NEXT(unlink)(path);

	if (!failed)
		note(path, REMOVE, 0, "", 0);
	return failed;
}

int mkdir(const char *path, mode_t mode)
{
	int failed = NEXT(mkdir)(path, mode);

	if (!failed)
		note(path, MKDIR, 0, "", 0);
	return failed;
}

int rename(const char *from, const char *to)
{
	int failed = NEXT(rename)(from, to);
	const char *name = name_of(to);

	if (!failed && name)
		note(from, RENAME, 0, name, strlen(name));
	return failed;
}
