/* The demo game: a game server small enough to read, honest enough to test with.
 *
 * It echoes every datagram on 7777/udp (one that begins with "who am I" is answered with the id of
 * the session, the address that it came from, and its rest; at "call ADDRESS:PORT" it sends its id
 * there, as it does at first if asked), greets every connection on 7778/tcp with
 * a line and echoes what follows, and prints numbered lines with the time on stdout from its first
 * moment, every second one on stderr if asked, so that a reader of the log can see gaps, doubles and
 * stalls. At SIGTERM it prints a line, writes save.json and ends with code 0; at SIGUSR1 it prints what
 * it may know of its session, and begins a flood if asked. It needs nothing from its image but a folder
 * to write to.
 *
 * One thread. Writing to stdout blocks as it does in real games: who does not read, stalls it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    UDP_PORT = 7777,
    TCP_PORT = 7778,
    CONNECTIONS = 64,
    FILES = 8,
    LINE = 4096,
    FLOOD_LINE = 128,     /* bytes of one line of the flood, its newline included */
    FLOOD_BURST = 512,    /* lines between two looks at the sockets */
};
static const double NEVER = 1e18;
static const double PATIENCE = 2; /* seconds that a game which is to end waits for a reader */

struct file {
    const char *path;
    uint64_t size;
};

enum flood { LINES, ONE_LINE, BYTES };

static struct {
    double exit_after, crash_after, open_port_late, lines_per_second, flood, flood_bytes;
    int exit_code;
    bool flooding, flood_at_signal, ignore_sigterm, ports_from_env, stderr_too;
    enum flood flood_with;
    const char *data, *call;
    struct file files[FILES];
    int file_count;
} options = {
    .exit_after = NEVER,
    .crash_after = NEVER,
    .flood_bytes = NEVER,
    .lines_per_second = 10,
    .data = "/data",
};

static volatile sig_atomic_t terminations, claims;
static int wake[2];                       /* written by the signal handler, read by poll */
static unsigned long lines, datagrams, connections;

/* ---- time and output ------------------------------------------------------------------------ */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void wall_time(char *out, size_t size) {
    struct timespec t;
    struct tm utc;
    char seconds[32];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &utc);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out, size, "%s.%03ldZ", seconds, t.tv_nsec / 1000000);
}

static bool asked_to_end(void) {
    return terminations > 0 && !options.ignore_sigterm;
}

/* Write all of it. Gives up only when asked to end without a reader; answers whether it has not. */
static bool write_out(int target, const char *text, size_t length) {
    static double patient_until; /* for all lines in a row that nobody reads; 0 for none */
    while (length > 0) {
        ssize_t written = write(target, text, length);
        if (written >= 0) {
            text += written;
            length -= (size_t)written;
            patient_until = 0;
        } else if (errno != EINTR) {
            return false;
        } else if (asked_to_end()) {
            if (patient_until == 0)
                patient_until = now() + PATIENCE;
            if (now() >= patient_until)
                return false;
        }
    }
    return true;
}

/* A line that was given up takes no number. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    char line[LINE], when[64];
    const unsigned long next = lines + 1;
    wall_time(when, sizeof when);
    int length = snprintf(line, sizeof line, "%06lu %s ", next, when);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 1)
        length = (int)sizeof line - 1;
    line[length++] = '\n';
    int target = options.stderr_too && next % 2 ? STDERR_FILENO : STDOUT_FILENO;
    if (write_out(target, line, (size_t)length))
        lines = next;
}

__attribute__((noreturn)) static void fail(const char *what, const char *which) {
    dprintf(STDERR_FILENO, "game: cannot %s %s: %s\n", what, which, strerror(errno));
    exit(1);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Byte i of the file is i % 251, so that a test can tell a whole file from a torn one. */
static void write_file(const struct file *file) {
    static unsigned char block[251 * 1024];
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (unsigned char)(i % 251);
    int target = open(file->path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (target < 0)
        fail("create", file->path);
    for (uint64_t left = file->size; left > 0;) {
        size_t chunk = left < sizeof block ? (size_t)left : sizeof block;
        for (size_t done = 0; done < chunk;) {
            ssize_t written = write(target, block + done, chunk - done);
            if (written < 0 && errno != EINTR)
                fail("write", file->path);
            done += written > 0 ? (size_t)written : 0;
        }
        left -= chunk;
    }
    close(target);
    say("wrote %s %llu", file->path, (unsigned long long)file->size);
}

static void save(void) {
    char path[4096], partial[4096 + 8], when[64];
    const char *session = getenv("TILTYARD_SESSION_ID");
    snprintf(path, sizeof path, "%s/save.json", options.data);
    snprintf(partial, sizeof partial, "%s.part", path);
    wall_time(when, sizeof when);
    sigset_t all, before; /* on a busy disk a file is opened slowly, and a signal would break it off */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    FILE *target = fopen(partial, "w");
    if (target == NULL)
        fail("create", partial);
    fprintf(target, "{\"time\": \"%s\", \"lines\": %lu, \"datagrams\": %lu, \"connections\": %lu, "
            "\"session\": \"", when, lines, datagrams, connections);
    for (const char *c = session ? session : ""; *c; c++)
        fprintf(target, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    fprintf(target, "\"}\n");
    if (fclose(target) != 0 || rename(partial, path) != 0)
        fail("write", path);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* ---- signals -------------------------------------------------------------------------------- */

static void on_sigterm(int number) {
    (void)number;
    int saved = errno;
    terminations++;
    if (write(wake[1], "", 1) < 0) { /* full: poll wakes anyway */
    }
    if (!options.ignore_sigterm) {
        /* Interrupts, again and again, a write that nobody reads. */
        const struct itimerval tick = {{0, 100000}, {0, 100000}};
        setitimer(ITIMER_REAL, &tick, NULL);
    }
    errno = saved;
}

static void on_sigusr1(int number) {
    (void)number;
    claims++;
    if (write(wake[1], "", 1) < 0) { /* full: poll wakes anyway */
    }
}

static void on_sigalrm(int number) {
    (void)number;
}

static void handle_signals(void) {
    if (pipe2(wake, O_NONBLOCK | O_CLOEXEC) != 0)
        fail("make", "pipe");
    struct sigaction action = {.sa_handler = on_sigterm}; /* no SA_RESTART: write must return */
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = on_sigusr1;
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = on_sigalrm;
    sigaction(SIGALRM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Prints, at each claim, what it has become. Answers whether there was one. */
static bool read_session(void) {
    static int seen;
    const int before = seen;
    while (seen < claims) {
        seen++;
        char text[LINE / 2] = "";
        FILE *file = fopen("/run/tiltyard/session.json", "r");
        if (file == NULL || fgets(text, sizeof text, file) == NULL)
            snprintf(text, sizeof text, "nothing");
        if (file != NULL)
            fclose(file);
        text[strcspn(text, "\n")] = 0;
        say("SIGUSR1: %s", text);
    }
    return seen > before;
}

/* Answers whether it is time to end. */
static bool terminate(void) {
    static int seen;
    char drain[64];
    while (read(wake[0], drain, sizeof drain) > 0) {
    }
    while (seen < terminations) {
        seen++;
        say(options.ignore_sigterm ? "SIGTERM ignored" : "SIGTERM: saving");
    }
    return asked_to_end();
}

/* ---- network -------------------------------------------------------------------------------- */

static uint16_t port_of(uint16_t container_port, const char *variable) {
    if (!options.ports_from_env)
        return container_port;
    const char *value = getenv(variable);
    char *end = NULL;
    long port = value ? strtol(value, &end, 10) : 0;
    if (port < 1 || port > 65535 || *end != '\0') {
        dprintf(STDERR_FILENO, "game: %s is not a port\n", variable);
        exit(1);
    }
    return (uint16_t)port;
}

static int open_socket(int type, uint16_t port, const char *name) {
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_ANY)}};
    const int on = 1;
    int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("open", name);
    if (type == SOCK_STREAM)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        fail("bind", name);
    if (type == SOCK_STREAM && listen(fd, CONNECTIONS) != 0)
        fail("listen on", name);
    return fd;
}

/* Send the id of the session to an address and port. */
static void call(int udp, const char *whom) {
    const char *session = getenv("TILTYARD_SESSION_ID");
    struct sockaddr_in to = {.sin_family = AF_INET};
    char address[INET_ADDRSTRLEN];
    uint16_t port;
    if (sscanf(whom, "%15[0-9.]:%hu", address, &port) != 2 || !inet_aton(address, &to.sin_addr))
        return;
    to.sin_port = htons(port);
    if (!session)
        session = "-";
    sendto(udp, session, strlen(session), 0, (const struct sockaddr *)&to, sizeof to);
}

static void echo_datagrams(int udp) {
    static const char CALL[] = "call ";
    static const char WHO[] = "who am I";
    static const size_t who = sizeof WHO - 1;
    static char datagram[65536], answer[LINE];
    const char *session = getenv("TILTYARD_SESSION_ID");
    struct sockaddr_in player;
    for (int i = 0; i < 256; i++) {
        socklen_t size = sizeof player;
        ssize_t length = recvfrom(udp, datagram, sizeof datagram, 0,
                                  (struct sockaddr *)&player, &size);
        if (length < 0)
            return;
        if (datagrams++ == 0)
            say("first datagram");
        datagram[length] = '\0'; /* the longest has 65,507 bytes */
        if (strncmp(datagram, CALL, sizeof CALL - 1) == 0) {
            call(udp, datagram + sizeof CALL - 1);
            continue;
        }
        const char *reply = datagram;
        if ((size_t)length >= who && memcmp(datagram, WHO, who) == 0) {
            length = snprintf(answer, sizeof answer, "%s %s:%d%s", session ? session : "-",
                              inet_ntoa(player.sin_addr), ntohs(player.sin_port),
                              datagram + who);
            if (length > (int)sizeof answer - 1)
                length = (int)sizeof answer - 1;
            reply = answer;
        }
        sendto(udp, reply, (size_t)length, 0, (const struct sockaddr *)&player, size);
    }
}

/* Puts a new connection into a free slot; without one the connection is closed. */
static void greet(int tcp, struct pollfd *slots) {
    const char *session = getenv("TILTYARD_SESSION_ID");
    int fd = accept4(tcp, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    connections++;
    for (int i = 0; i < CONNECTIONS; i++) {
        if (slots[i].fd < 0) {
            slots[i].fd = fd;
            dprintf(fd, "demo game %s\n", session ? session : "-");
            return;
        }
    }
    close(fd);
}

static void echo_connection(struct pollfd *slot) {
    char buffer[4096];
    ssize_t length = recv(slot->fd, buffer, sizeof buffer, 0);
    if (length > 0 && send(slot->fd, buffer, (size_t)length, 0) == length)
        return;
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    close(slot->fd);
    slot->fd = -1;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static double flood_next = NEVER, flood_left;

static void begin_flood(double time) {
    flood_next = time;
    flood_left = options.flood_bytes;
}

/* The flood is over behind its last byte: then there is no next. */
static void flooded(size_t bytes) {
    flood_next += options.flood > 0 ? (double)bytes / options.flood : 0;
    flood_left -= (double)bytes;
    if (flood_left <= 0) {
        flood_next = NEVER;
        say("flood over");
    }
}

static void flood(double time) {
    static const char filler[] = "flood ................................................"
                                 "................................................";
    char bytes[256];
    for (int i = 0; i < (int)sizeof bytes; i++)
        bytes[i] = options.flood_with == BYTES ? (char)i : 'x';
    if (options.flood_with != LINES) {
        for (int i = 0; i < FLOOD_BURST && flood_next <= time && !asked_to_end(); i++) {
            write_out(STDOUT_FILENO, bytes, sizeof bytes);
            flooded(sizeof bytes);
        }
        return;
    }
    for (int i = 0; i < FLOOD_BURST && flood_next <= time && !asked_to_end(); i++) {
        /* number, time and their spaces take 32 bytes, the newline one */
        say("%.*s", FLOOD_LINE - 33 - (lines >= 999999 ? 1 : 0), filler);
        flooded(FLOOD_LINE);
    }
}

static int play(void) {
    enum { WAKE, UDP, TCP, FIRST };
    struct pollfd fds[FIRST + CONNECTIONS];
    const double start = now();
    double next_line = start;
    for (int i = 0; i < FIRST + CONNECTIONS; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    fds[WAKE].fd = wake[0];
    if (!options.flood_at_signal)
        begin_flood(start);
    for (;;) {
        double time = now();
        if (read_session() && options.flood_at_signal)
            begin_flood(time);
        if (terminate()) {
            save();
            return 0;
        }
        if (time - start >= options.exit_after) {
            say("exit %d", options.exit_code);
            return options.exit_code;
        }
        if (time - start >= options.crash_after) {
            say("crash");
            abort();
        }
        if (fds[UDP].fd < 0 && time - start >= options.open_port_late) {
            fds[UDP].fd = open_socket(
                SOCK_DGRAM, port_of(UDP_PORT, "TILTYARD_PORT_UDP_7777"), "the UDP port");
            fds[TCP].fd = open_socket(
                SOCK_STREAM, port_of(TCP_PORT, "TILTYARD_PORT_TCP_7778"), "the TCP port");
            if (options.call)
                call(fds[UDP].fd, options.call);
            say("ports open");
        }
        if (options.lines_per_second > 0 && time >= next_line) {
            say("tick");
            next_line += 1 / options.lines_per_second;
        }
        if (options.flooding)
            flood(time);

        double wait = 0.05; /* the deadlines above are looked at this often at least */
        if (options.lines_per_second > 0 && next_line - time < wait)
            wait = next_line - time;
        if (options.flooding && flood_next - time < wait)
            wait = flood_next - time;
        const struct timespec timeout = {0, wait > 0 ? (long)(wait * 1e9) : 0};
        if (ppoll(fds, FIRST + CONNECTIONS, &timeout, NULL) <= 0)
            continue;
        if (fds[UDP].revents)
            echo_datagrams(fds[UDP].fd);
        for (int i = FIRST; i < FIRST + CONNECTIONS; i++)
            if (fds[i].revents)
                echo_connection(&fds[i]);
        if (fds[TCP].revents)
            greet(fds[TCP].fd, fds + FIRST);
    }
}

/* ---- arguments ------------------------------------------------------------------------------ */

__attribute__((noreturn)) static void usage(void) {
    dprintf(STDERR_FILENO,
            "usage: game [--exit-after SECONDS] [--exit-code N] [--crash-after SECONDS]\n"
            "            [--ignore-sigterm] [--open-port-late SECONDS] [--ports-from-env]\n"
            "            [--lines-per-second N] [--flood BYTES_PER_SECOND (0: no limit)]\n"
            "            [--flood-with lines|one-line|bytes] [--flood-bytes BYTES]\n"
            "            [--flood-at-signal (bytes at each SIGUSR1)] [--stderr-too]\n"
            "            [--write-file PATH SIZE]... [--data FOLDER] [--call ADDRESS:PORT]\n");
    exit(2);
}

static double number(const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0 && value < NEVER))
        usage();
    return value;
}

static enum flood flood_of(const char *text) {
    if (strcmp(text, "one-line") == 0)
        return ONE_LINE;
    if (strcmp(text, "bytes") == 0)
        return BYTES;
    if (strcmp(text, "lines") != 0)
        usage();
    return LINES;
}

static void parse(int count, char **values) {
    enum { EXIT_AFTER = 1, EXIT_CODE, CRASH_AFTER, IGNORE, LATE, ENV, RATE, FLOOD, WITH, BYTES_OF,
           AT_SIGNAL, ERR, WRITE, DATA, CALL };
    static const struct option known[] = {
        {"exit-after", required_argument, NULL, EXIT_AFTER},
        {"exit-code", required_argument, NULL, EXIT_CODE},
        {"crash-after", required_argument, NULL, CRASH_AFTER},
        {"ignore-sigterm", no_argument, NULL, IGNORE},
        {"open-port-late", required_argument, NULL, LATE},
        {"ports-from-env", no_argument, NULL, ENV},
        {"lines-per-second", required_argument, NULL, RATE},
        {"flood", required_argument, NULL, FLOOD},
        {"flood-with", required_argument, NULL, WITH},
        {"flood-bytes", required_argument, NULL, BYTES_OF},
        {"flood-at-signal", no_argument, NULL, AT_SIGNAL},
        {"stderr-too", no_argument, NULL, ERR},
        {"write-file", required_argument, NULL, WRITE},
        {"data", required_argument, NULL, DATA},
        {"call", required_argument, NULL, CALL},
        {0},
    };
    opterr = 0;
    for (int found; (found = getopt_long(count, values, "+", known, NULL)) != -1;) {
        switch (found) {
        case EXIT_AFTER: options.exit_after = number(optarg); break;
        case EXIT_CODE: options.exit_code = (int)number(optarg); break;
        case CRASH_AFTER: options.crash_after = number(optarg); break;
        case IGNORE: options.ignore_sigterm = true; break;
        case LATE: options.open_port_late = number(optarg); break;
        case ENV: options.ports_from_env = true; break;
        case RATE: options.lines_per_second = number(optarg); break;
        case FLOOD: options.flooding = true; options.flood = number(optarg); break;
        case WITH: options.flood_with = flood_of(optarg); break;
        case BYTES_OF: options.flood_bytes = number(optarg); break;
        case AT_SIGNAL: options.flood_at_signal = true; break;
        case ERR: options.stderr_too = true; break;
        case WRITE:
            if (optind >= count || options.file_count == FILES)
                usage();
            options.files[options.file_count++] =
                (struct file){optarg, (uint64_t)number(values[optind++])};
            break;
        case DATA: options.data = optarg; break;
        case CALL: options.call = optarg; break;
        default: usage();
        }
    }
    if (optind != count)
        usage();
}

int main(int count, char **values) {
    parse(count, values);
    handle_signals();
    say("demo game starts");
    for (int i = 0; i < options.file_count; i++)
        write_file(&options.files[i]);
    return play();
}
