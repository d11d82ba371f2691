/* A minimal game server. Replace it by yours.
 *
 * It answers each datagram on 7777/udp and logs to stdout. It uses what Tiltyard gives every game:
 * environment variables, a published port, and SIGTERM when the session ends.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void log_and_exit(int number) {
    static const char line[] = "SIGTERM received\n";
    (void)number;
    _exit(write(STDOUT_FILENO, line, sizeof line - 1) < 0);
}

int main(void) {
    const struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7777)};
    const char *session = getenv("TILTYARD_SESSION_ID");
    int players = socket(AF_INET, SOCK_DGRAM, 0);
    char datagram[1024], answer[2048];

    setvbuf(stdout, NULL, _IOLBF, 0); /* log each line as it is written */
    signal(SIGTERM, log_and_exit);
    if (bind(players, (const struct sockaddr *)&here, sizeof here) != 0) {
        perror("7777/udp");
        return 1;
    }
    printf("%s listens on 7777/udp\n", session ? session : "no session");
    for (;;) {
        struct sockaddr_in player;
        socklen_t size = sizeof player;
        ssize_t length =
            recvfrom(players, datagram, sizeof datagram, 0, (struct sockaddr *)&player, &size);
        if (length < 0)
            continue;
        int written = snprintf(answer, sizeof answer, "%s received %.*s", session ? session : "-",
                               (int)length, datagram);
        sendto(players, answer, (size_t)written, 0, (const struct sockaddr *)&player, size);
    }
}
