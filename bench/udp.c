/* The physical limit: what bare UDP does between two ranks, measured as pingpong.c measures MPI. The
 * ranks are launched by MPI and agree through it; every measured byte goes over sockets of this file.
 *
 * Sockets are connected and polled. A message is cut into the longest datagrams that the interface
 * carries whole; several of them are handed to the kernel and taken from it in one call, where it can
 * (UDP_SEGMENT, UDP_GRO). Nothing is ever sent again: the receiver says how much has come, on sockets
 * of their own, and the sender stays within what the receiver's buffer holds. A sample in which
 * something gets lost all the same does not count. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "measure.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define HEADERS 28              /* of IPv4 and UDP */
#define LONGEST (65535 - HEADERS)
#define SEGMENTS 64             /* the most that one call takes */
#define BUFFER (4 << 20)        /* asked for; the kernel counts its own overhead against twice that */
#define LOST 0.5                /* seconds without a byte */

static int data, reports;       /* sockets */
static int datagram;            /* longest payload that is not fragmented */
static int offload;             /* the kernel cuts and joins */
static int64_t window_bytes;    /* under way at most */
static int segment;             /* payload of the datagrams now */

static void fail(const char *what)
{
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* The IPv4 address of the interface. */
static struct in_addr address_of(const char *name)
{
    struct in_addr found = {0};
    struct ifaddrs *all, *one;
    if (getifaddrs(&all) != 0)
        fail("getifaddrs");
    for (one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && strcmp(one->ifa_name, name) == 0)
            found = ((struct sockaddr_in *)one->ifa_addr)->sin_addr;
    freeifaddrs(all);
    if (found.s_addr == 0) {
        fprintf(stderr, "udp: %s has no IPv4 address\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return found;
}

static int mtu_of(int fd, const char *name)
{
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(fd, SIOCGIFMTU, &request) != 0)
        fail("SIOCGIFMTU");
    return request.ifr_mtu;
}

/* A polled socket that is connected with the other rank's. */
static int open_socket(struct in_addr address)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = address}, other;
    socklen_t length = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), size = BUFFER;
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, length) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &length) != 0)
        fail("a socket");
    MPI_Sendrecv(&own, sizeof own, MPI_BYTE, peer, 1, &other, sizeof other, MPI_BYTE, peer, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (connect(fd, (struct sockaddr *)&other, sizeof other) != 0)
        fail("connect");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return fd;
}

static void open_sockets(const char *name)
{
    struct in_addr address = address_of(name);
    int size = 0;
    socklen_t length = sizeof size;
    data = open_socket(address);
    reports = open_socket(address);
    datagram = mtu_of(data, name) - HEADERS;
    if (datagram > LONGEST)
        datagram = LONGEST;
    offload = setsockopt(data, SOL_UDP, UDP_SEGMENT, &(int){0}, sizeof(int)) == 0 &&
              setsockopt(data, SOL_UDP, UDP_GRO, &(int){1}, sizeof(int)) == 0;
    if (getsockopt(data, SOL_SOCKET, SO_RCVBUF, &size, &length) != 0)
        fail("SO_RCVBUF");
    window_bytes = size / 8;
}

/* How messages of this size are cut. */
static void cut(int size)
{
    int wanted = size < datagram ? size : datagram, several;
    if (wanted == segment)
        return;
    segment = wanted;
    several = 2 * segment <= LONGEST ? segment : 0;
    if (offload && setsockopt(data, SOL_UDP, UDP_SEGMENT, &several, sizeof several) != 0)
        fail("UDP_SEGMENT");
}

/* Time since a byte has moved; looked at now and then. */
struct watch {
    unsigned turns;
    double since;
};

static int is_late(struct watch *watch)
{
    if (++watch->turns % 4096 != 0)
        return 0;
    if (watch->since == 0)
        watch->since = MPI_Wtime();
    return MPI_Wtime() - watch->since > LOST;
}

/* Tells of errors that are none: the other side has nothing, or no room, now. */
static int is_patient(void)
{
    return errno == EAGAIN || errno == ENOBUFS || errno == ECONNREFUSED || errno == EINTR;
}

/* Sends bytes, within the window; 0 if they get lost. */
static int send_bytes(const unsigned char *from, int64_t bytes)
{
    int64_t sent = 0, arrived = 0, at_once = segment;
    struct watch watch = {0};
    if (offload && 2 * segment <= LONGEST)
        at_once = (LONGEST / segment < SEGMENTS ? LONGEST / segment : SEGMENTS) * (int64_t)segment;
    while (sent < bytes) {
        int64_t some = bytes - sent < at_once ? bytes - sent : at_once, report;
        if (sent + some - arrived > window_bytes && arrived < sent) {
            while (recv(reports, &report, sizeof report, 0) == sizeof report)
                if (report > arrived) {
                    arrived = report;
                    watch.since = 0;
                }
            if (is_late(&watch))
                return 0;
            continue;
        }
        ssize_t done = send(data, from + sent, (size_t)some, 0);
        if (done > 0)
            sent += done;
        else if (!is_patient())
            fail("send");
    }
    return 1;
}

/* Receives bytes, says now and then how many; 0 if they get lost. */
static int receive_bytes(unsigned char *to, int64_t bytes)
{
    int64_t received = 0, reported = 0;
    struct watch watch = {0};
    while (received < bytes) {
        ssize_t some = recv(data, to + received, SLACK, 0);
        if (some > 0) {
            received += some;
            watch.since = 0;
            if (received - reported >= window_bytes / 8) {
                reported = received;
                send(reports, &reported, sizeof reported, 0);
            }
        } else if (some < 0 && !is_patient()) {
            fail("recv");
        } else if (is_late(&watch)) {
            return 0;
        }
    }
    return 1;
}

/* Forgets what is still in the sockets: of a sample that was given up, or late reports. */
static void drain(void)
{
    unsigned char bytes[8];
    MPI_Barrier(MPI_COMM_WORLD);
    while (recv(data, bytes, sizeof bytes, MSG_TRUNC) >= 0 || recv(reports, bytes, sizeof bytes, 0) >= 0)
        ;
    MPI_Barrier(MPI_COMM_WORLD);
}

static double ping_pong(int size, int count)
{
    cut(size);
    drain();
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        stamp(outgoing, size, 2 * i + rank);
        if (rank == 0 && !send_bytes(outgoing, size))
            return -1;
        if (!receive_bytes(incoming, size))
            return -1;
        check_stamp(incoming, size, 2 * i + peer);
        if (rank == 1 && !send_bytes(outgoing, size))
            return -1;
    }
    return MPI_Wtime() - start;
}

static double stream(int size, int window, int bursts, int posted)
{
    int64_t bytes = (int64_t)window * size;
    double seconds = 0;
    (void)posted; /* a socket's buffer is always there */
    cut(size);
    drain();
    for (int b = 0; b < bursts; b++) {
        unsigned char token = 0;
        if (rank == 0) {
            for (int w = 0; w < window; w++)
                stamp(outgoing + (size_t)w * size, size, b + w);
            double start = MPI_Wtime();
            if (!send_bytes(outgoing, bytes) || !receive_bytes(incoming, 1))
                return -1;
            seconds += MPI_Wtime() - start;
        } else {
            if (!receive_bytes(incoming, bytes))
                return -1;
            for (int w = 0; w < window; w++)
                check_stamp(incoming + (size_t)w * size, size, b + w);
            if (send(data, &token, 1, 0) != 1)
                return -1;
        }
    }
    return seconds;
}

static void check_whole(int size)
{
    lay_out(size);
    cut(size);
    drain();
    int whole = rank == 0 ? send_bytes(outgoing, size) && receive_bytes(incoming, size)
                          : receive_bytes(incoming, size) && send_bytes(outgoing, size);
    check_bytes(size, whole ? size : 0);
}

int main(int argc, char **argv)
{
    static const struct medium udp = {.ping_pong = ping_pong, .stream = stream,
                                      .check_whole = check_whole};
    begin(argc, argv);
    open_sockets(interface_name ? interface_name : "lo");
    say_served("bare UDP");
    return measure(&udp);
}
