/* Preloaded: the wall clock alone is WALL_CLOCK_OFFSET seconds off, as after a bad step of NTP. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int (*next)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	int failed = next(clock, now);
	const char *offset = getenv("WALL_CLOCK_OFFSET");

	if (!failed && clock == CLOCK_REALTIME && offset)
		now->tv_sec += atol(offset);
	return failed;
}
