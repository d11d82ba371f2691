/* Preloaded: the wall clock alone is off, as after a bad step of NTP, by the seconds in the first
 * eight bytes of the file WALL_CLOCK_OFFSET, which may change at any time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void)
{
	int file = open(getenv("WALL_CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC);
	void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);

	if (mapped == MAP_FAILED)
		abort();
	offset = mapped;
	close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int (*next)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	int failed = next(clock, now);

	if (!failed && clock == CLOCK_REALTIME && offset)
		now->tv_sec += *offset;
	return failed;
}
