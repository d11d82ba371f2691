/* A game server that is small enough to be replaced by yours.
 *
 * It answers each datagram on 7777/udp and says on stdout what it does. All that it needs of Tiltyard
 * is what every game gets: variables, a port that is published, and SIGTERM when the session ends.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void save_and_end(int number) {
    static const char line[] = "told to end\n";
    (void)number;
    _exit(write(STDOUT_FILENO, line, sizeof line - 1) < 0);
}

int main(void) {
    const struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7777)};
    const char *session = getenv("TILTYARD_SESSION_ID");
    int players = socket(AF_INET, SOCK_DGRAM, 0);
    char heard[1024], answer[2048];

    setvbuf(stdout, NULL, _IOLBF, 0); /* a line of the log when it is written, not 4 KiB later */
    signal(SIGTERM, save_and_end);
    if (bind(players, (const struct sockaddr *)&here, sizeof here) != 0) {
        perror("7777/udp");
        return 1;
    }
    printf("%s listens on 7777/udp\n", session ? session : "nobody's session");
    for (;;) {
        struct sockaddr_in player;
        socklen_t size = sizeof player;
        ssize_t length = recvfrom(players, heard, sizeof heard, 0, (struct sockaddr *)&player, &size);
        if (length < 0)
            continue;
        int said = snprintf(answer, sizeof answer, "%s heard %.*s", session ? session : "-",
                            (int)length, heard);
        sendto(players, answer, (size_t)said, 0, (const struct sockaddr *)&player, size);
    }
}
