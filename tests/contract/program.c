/* What runs in the containers of the contract tests: it does one thing at each signal. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t signal_seen;

static void note(int number) { signal_seen = number; }

static void copy(const char *path, FILE *out) {
    static char buffer[1 << 16];
    size_t count;
    FILE *in = fopen(path, "rb");
    while (in && (count = fread(buffer, 1, sizeof buffer, in)) > 0) fwrite(buffer, 1, count, out);
    if (in) fclose(in);
    fflush(out);
}

static void eat(void) {
    for (;;) {
        char *piece = malloc(1 << 20);
        if (piece) memset(piece, 1, 1 << 20);
    }
}

int main(int count, char **values) {
    const int numbers[] = {SIGUSR1, SIGUSR2, SIGHUP, SIGTERM};
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action = {.sa_handler = note};
        if (numbers[i] == SIGTERM && count > 1 && strcmp(values[1], "ignore-sigterm"))
            action.sa_handler = SIG_DFL;
        if (numbers[i] == SIGTERM && count == 1) action.sa_handler = SIG_DFL;
        sigaction(numbers[i], &action, NULL);
    }
    if (count == 1 || strcmp(values[1], "silent")) {
        puts("ready");
        fflush(stdout);
    }
    for (;;) {
        sigsuspend(&none);
        if (signal_seen == SIGUSR1) return 3;
        if (signal_seen == SIGUSR2) copy("/payload", stdout);
        if (signal_seen == SIGHUP) eat();
    }
}
