/* Makes the tree /tree that its first argument names, as no image could hold it, and ends. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void must(int outcome, const char *what) {
    if (outcome < 0) {
        perror(what);
        exit(1);
    }
}

static void file(const char *name, mode_t mode) {
    int made = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    must(made, name);
    must((int)write(made, "content\n", 8), name);
    must(fchmod(made, mode), name);
    close(made);
}

static void folder(const char *name, mode_t mode) {
    must(mkdir(name, 0700), name);
    must(chmod(name, mode), name);
}

static void hostile(void) {
    char name[256];
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    file("setuid", 06755);
    folder("sticky", 01777);
    file("one", 0644);
    must(link("one", "two"), "two");
    must(symlink("/etc/passwd", "soft"), "soft");
    must(link("soft", "soft-two"), "soft-two");
    must(mkfifo("fifo", 0644), "fifo");
    must(link("fifo", "fifo-two"), "fifo-two");
    must(bind(listener, (struct sockaddr *)&address, sizeof address), "socket");
    file("new\nline\r", 0644);
    file("escape\033[31m", 0644);
    file("bytes\xff\xfe", 0644);
    memset(name, 'n', 150);
    name[150] = 0;
    file(name, 0644);
    memset(name, 'm', 255);
    name[255] = 0;
    folder(name, 0755);
    must(chdir(name), name);
    file(name, 0644);
}

/* Links by which a path could lead out of the container to a file of the host. */
static void links(const char *canary) {
    char up[4096];
    snprintf(up, sizeof up, "../../../../../../../..%s", canary);
    must(symlink(canary, "canary"), "canary");
    must(symlink(up, "up"), "up");
    must(symlink("/", "root"), "root");
    must(symlink("../../../../../../../..", "above"), "above");
    must(symlink("/proc/1/root", "process"), "process");
    must(symlink("circle", "circle"), "circle");
    file("file", 0644);
}

/* A file without a byte on disk, as large as the file system lets it be at most. */
static void sparse(unsigned long largest) {
    off_t size = 0;
    int made = open("sparse", O_WRONLY | O_CREAT, 0644);
    must(made, "sparse");
    for (unsigned long step = largest; step; step >>= 1)
        if ((unsigned long)size + step <= largest && !ftruncate(made, size + (off_t)step))
            size += (off_t)step;
    must(ftruncate(made, size), "sparse");
}

int main(int count, char **values) {
    umask(0);
    folder("/tree", 0755);
    must(chdir("/tree"), "/tree");
    if (count < 2) return 2;
    if (!strcmp(values[1], "hostile")) hostile();
    if (!strcmp(values[1], "links")) links(values[2]);
    if (!strcmp(values[1], "sparse")) sparse(strtoul(values[2], NULL, 10));
    return 0;
}
