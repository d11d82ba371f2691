/* Prints how it was executed, one fact on a line. It needs no library and no file in its image. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static void show_strings(const char *what, char **strings) {
    for (; *strings; strings++) printf("%s %s\n", what, *strings);
}

static void show_limits(void) {
    for (int number = 0; number < RLIM_NLIMITS; number++) {
        struct rlimit limit;
        getrlimit(number, &limit);
        printf("limit %d %llu %llu\n", number, (unsigned long long)limit.rlim_cur,
               (unsigned long long)limit.rlim_max);
    }
}

/* Signals, capabilities, user and groups. */
static void show_status(void) {
    static const char *const wanted[] = {"Umask:",  "Uid:",    "Gid:",    "Groups:", "SigPnd:",
                                         "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:", "CapInh:",
                                         "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:",
                                         "Seccomp:", "Threads:"};
    char line[1024];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (!strncmp(line, wanted[i], strlen(wanted[i]))) printf("status %s", line);
    if (status) fclose(status);
}

/* Numbers and kinds: the names of pipes differ. */
static void show_descriptors(void) {
    for (int descriptor = 0; descriptor < 1024; descriptor++) {
        struct stat found;
        if (fstat(descriptor, &found) == 0)
            printf("descriptor %d %o\n", descriptor, found.st_mode & S_IFMT);
    }
}

int main(int count, char **values) {
    char folder[PATH_MAX];
    show_strings("argument", values);
    show_strings("variable", environ);
    printf("arguments %d\n", count);
    printf("folder %s\n", getcwd(folder, sizeof folder) ? folder : strerror(errno));
    printf("leads its group %d\n", getpgrp() == getpid());
    printf("session %d\n", getsid(0));
    printf("parent %d\n", getppid());
    printf("nice %d\n", getpriority(PRIO_PROCESS, 0));
    printf("scheduler %d\n", sched_getscheduler(0));
    printf("personality %d\n", personality(0xffffffff));
    printf("dumpable %d\n", prctl(PR_GET_DUMPABLE));
    printf("dies with its parent %d\n", ({ int number = 0; prctl(PR_GET_PDEATHSIG, &number); number; }));
    show_limits();
    show_status();
    show_descriptors();
    return 7;
}
