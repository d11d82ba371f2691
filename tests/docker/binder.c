/* Binds sockets on a signal, and answers every datagram with itself.
 *
 * Usage: binder [--child] [--many COUNT] PROTOCOL ADDRESS PORT...
 *
 * It says "waits" once SIGUSR1 has it bind the sockets, and "bound" when it has. PORT may be the name
 * of a variable of the environment. With --child a child process does the binding. With --many it binds that many
 * UDP ports from 20001 upwards first, before it says "waits". */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOCKETS = 16 };

static struct pollfd sockets[SOCKETS];
static nfds_t count;

static void say(const char *what) {
    puts(what);
    fflush(stdout);
}

static void bind_one(const char *protocol, const char *address, const char *port) {
    const char *value = getenv(port);
    const in_port_t number = htons((in_port_t)atoi(value ? value : port));
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = number};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = number};
    const int is_v4 = inet_pton(AF_INET, address, &v4.sin_addr);
    if (!is_v4 && !inet_pton(AF_INET6, address, &v6.sin6_addr)) errx(1, "%s", address);
    const int kind = strcmp(protocol, "udp") ? SOCK_STREAM : SOCK_DGRAM;
    int fd = socket(is_v4 ? AF_INET : AF_INET6, kind, 0);
    if (fd < 0 || (is_v4 ? bind(fd, (struct sockaddr *)&v4, sizeof v4)
                         : bind(fd, (struct sockaddr *)&v6, sizeof v6)))
        err(1, "%s %s", address, port);
    if (kind == SOCK_STREAM && listen(fd, 8)) err(1, "listen");
    sockets[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void bind_many(int number) {
    for (int at = 1; at <= number; at++) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((in_port_t)(20000 + at))};
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&v4, sizeof v4)) err(1, "socket %d", at);
    }
}

static void echo(int fd) {
    static char data[65536];
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    ssize_t length = recvfrom(fd, data, sizeof data, MSG_DONTWAIT, (struct sockaddr *)&from, &size);
    if (length >= 0) sendto(fd, data, (size_t)length, 0, (struct sockaddr *)&from, size);
}

static void hand_on(pid_t child, const sigset_t *signals) {
    for (int number; sigwait(signals, &number) == 0;) {
        if (number == SIGCHLD) exit(1);
        kill(child, number);
    }
}

int main(int values, char **value) {
    sigset_t signals, none;
    sigemptyset(&none);
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int at = 1;
    const int has_child = values > at && !strcmp(value[at], "--child");
    at += has_child;
    if (values > at + 1 && !strcmp(value[at], "--many")) {
        bind_many(atoi(value[at + 1]));
        at += 2;
    }
    say("waits");
    if (has_child) {
        pid_t child = fork();
        if (child > 0) hand_on(child, &signals);
    }
    sigdelset(&signals, SIGCHLD);
    for (;;) {
        const struct timespec now = {0};
        if (at < values && sigtimedwait(&signals, NULL, &now) == SIGUSR1) {
            for (; at + 2 < values; at += 3) bind_one(value[at], value[at + 1], value[at + 2]);
            say("bound");
        }
        if (poll(sockets, count, 10) > 0)
            for (nfds_t i = 0; i < count; i++)
                if (sockets[i].revents) echo(sockets[i].fd);
    }
}
