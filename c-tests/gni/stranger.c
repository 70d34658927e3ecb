/* Sends what is none of its business to the ports of somebody, who may do with it what he likes; says how much it was.
 *
 *     stranger ADDRESS udp|tcp PORT …
 *
 * Datagrams: random bytes of every length up to 1400, those that begin as the provider's do, and text. Connections: random
 * bytes, greetings that are cut off or go on for long, requests of HTTP; some are left open to the end.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LONGEST = 1400, DATAGRAMS = 20000, CONNECTIONS = 400, HELD = 100, MUCH = 64 << 10 };
static const char text[] = "GET / HTTP/1.1\r\nHost: node2\r\nUser-Agent: stranger\r\nAccept: */*\r\n\r\n";
static unsigned long long state = 88172645463325252ull;
static unsigned char bytes[MUCH];

static unsigned random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned) (state >> 11);
}

static size_t rubbish(int kind, size_t most)
{
    size_t length = random_number() % (most + 1);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char) random_number();
    if (kind == 1 && length >= 8)
        memset(bytes, 0, 8);
    if (kind == 2)
        for (size_t i = 0; i < length; i++)
            bytes[i] = (unsigned char) text[i % (sizeof(text) - 1)];
    return length;
}

static int open_to(const struct sockaddr_in *to, int type)
{
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *) to, sizeof(*to)) != 0) {
        perror("connect");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    unsigned long datagrams = 0, connections = 0, sent = 0;
    static int held[HELD];
    if (argc < 4 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    int is_tcp = strcmp(argv[2], "tcp") == 0;
    for (int port = 3; port < argc; port++) {
        to.sin_port = htons((unsigned short) atoi(argv[port]));
        for (int i = 0; !is_tcp && i < DATAGRAMS; i++) {
            static int fd = -1;
            if (i == 0)
                fd = open_to(&to, SOCK_DGRAM);
            ssize_t gone = send(fd, bytes, rubbish(i % 3, i % 2 ? 130 : LONGEST), 0);
            datagrams += gone >= 0;
            sent += gone > 0 ? (unsigned long) gone : 0;
        }
        for (int i = 0; is_tcp && i < CONNECTIONS; i++) {
            int fd = open_to(&to, SOCK_STREAM), is_short = i % 2;
            size_t length = rubbish(i % 3, is_short ? 40 : MUCH);
            /* Whoever does not listen may end it. */
            for (size_t at = 0; at < length;) {
                ssize_t gone = send(fd, bytes + at, length - at, MSG_DONTWAIT);
                if (gone <= 0)
                    break;
                at += (size_t) gone;
                sent += (unsigned long) gone;
            }
            connections++;
            if (held[i % HELD] > 0)
                close(held[i % HELD]);
            held[i % HELD] = fd;
        }
    }
    printf("%lu datagrams, %lu connections, %lu bytes\n", datagrams, connections, sent);
    return datagrams + connections == 0;
}
