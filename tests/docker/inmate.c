/* What runs in the containers of the hardening tests. It looks around and says what it sees, or
 * misbehaves: its arguments are orders, carried out one after the other. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void show(const char *path) {
    char buffer[4096];
    ssize_t count;
    int file = open(path, O_RDONLY);
    if (file < 0)
        printf("%s\n", strerror(errno));
    while (file >= 0 && (count = read(file, buffer, sizeof buffer)) > 0)
        fwrite(buffer, 1, (size_t)count, stdout);
    if (file >= 0)
        close(file);
}

static void list(const char *path) {
    struct dirent *entry;
    struct stat status;
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder)))
        if (entry->d_name[0] != '.'
            && !fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW))
            printf("%o %s\n", status.st_mode, entry->d_name);
    if (folder)
        closedir(folder);
}

static void write_to(const char *path) {
    int file = open(path, O_WRONLY | O_CREAT, 0644);
    puts(file < 0 ? strerror(errno) : "written");
    if (file >= 0)
        close(file);
}

static void answered(const char *what, long result) {
    printf("%s: %s\n", what, result < 0 ? strerror(errno) : "done");
}

static void attempt(void) {
    struct timespec epoch = {0};
    answered("mount", mount("none", "/", "tmpfs", 0, NULL));
    answered("remount", mount(NULL, "/run/tiltyard", NULL, MS_REMOUNT | MS_BIND, NULL));
    answered("device", mknod("/device", S_IFBLK | 0600, 0x100));
    answered("chroot", chroot("/"));
    answered("raw socket", socket(AF_INET, SOCK_RAW, 1));
    answered("user namespace", unshare(CLONE_NEWUSER));
    answered("mount namespace", unshare(CLONE_NEWNS));
    answered("bpf", syscall(SYS_bpf, 0, NULL, 0));
    answered("module", syscall(SYS_init_module, NULL, 0, ""));
    answered("clock", clock_settime(CLOCK_REALTIME, &epoch));
    answered("reboot", reboot(RB_DISABLE_CAD));
    answered("priority", setpriority(PRIO_PROCESS, 0, -1));
    answered("another user", setuid(1));
    answered("owner", chown("/inmate", 1, 1));
}

/* Children whose parent is gone are init's to bury. */
static void orphans(int count) {
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (fork() == 0) {
                while (getppid() != 1)
                    sched_yield();
            }
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

static void eat(void) {
    for (;;) {
        char *piece = malloc(1 << 20);
        if (piece)
            memset(piece, 1, 1 << 20);
    }
}

/* Beyond the limit of memory only the child is killed. */
static void have_a_child_eat(void) {
    pid_t child = fork();
    if (child == 0)
        eat();
    waitpid(child, NULL, 0);
}

static void fork_until_refused(void) {
    pid_t child;
    while ((child = fork()) > 0)
        continue;
    if (child < 0)
        exit(3);
    for (;;)
        pause();
}

static void fill(size_t mebibytes) {
    size_t size = mebibytes << 20;
    int file = open("/dev/shm/world", O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)size))
        exit(4);
    char *world = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (world == MAP_FAILED)
        exit(5);
    memset(world, 1, size);
}

static void watch(int count) {
    for (int i = 0; i < count; i++)
        if (inotify_init() < 0)
            exit(6);
}

static void make_timers(int count) {
    timer_t timer;
    for (int i = 0; i < count; i++)
        if (timer_create(CLOCK_MONOTONIC, NULL, &timer))
            exit(7);
}

int main(int count, char **values) {
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    for (int i = 1; i < count; i++) {
        const char *order = values[i], *operand = "";
        if (strstr("show list write orphans fill watch timers exit", order) && i + 1 < count)
            operand = values[++i];
        printf("#### %s %s\n", order, operand);
        fflush(stdout);
        if (!strcmp(order, "show"))
            show(operand);
        else if (!strcmp(order, "list"))
            list(operand);
        else if (!strcmp(order, "write"))
            write_to(operand);
        else if (!strcmp(order, "environment"))
            for (char **each = environ; *each; each++)
                puts(*each);
        else if (!strcmp(order, "attempt"))
            attempt();
        else if (!strcmp(order, "orphans"))
            orphans(atoi(operand));
        else if (!strcmp(order, "deaf"))
            signal(SIGTERM, SIG_IGN);
        else if (!strcmp(order, "eat"))
            eat();
        else if (!strcmp(order, "child-eats"))
            have_a_child_eat();
        else if (!strcmp(order, "forks"))
            fork_until_refused();
        else if (!strcmp(order, "fill"))
            fill((size_t)atoi(operand));
        else if (!strcmp(order, "watch"))
            watch(atoi(operand));
        else if (!strcmp(order, "timers"))
            make_timers(atoi(operand));
        else if (!strcmp(order, "bomb"))
            for (;;)
                fork();
        else if (!strcmp(order, "exit"))
            exit(atoi(operand));
    }
    puts("#### end ");
    fflush(stdout);
    for (;;)
        pause();
}
