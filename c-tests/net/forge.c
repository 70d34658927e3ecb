/* Datagrams that nobody asked for, as fast as they go: random bytes, headers that look right, cut
 * and overlong ones from a socket; or packets that were seen on a device, sent again as they were
 * and with changes, under their true sender's address.
 *
 * usage: forge send ADDRESS FIRST-PORT LAST-PORT COUNT [SEED]
 *        forge replay DEVICE ADDRESS FIRST-PORT LAST-PORT COUNT [SEED]
 *        forge look DEVICE ADDRESS FIRST-PORT LAST-PORT COUNT
 *        forge listen ADDRESS PORT
 *
 * `send` takes the kinds in turn. `replay` needs root: it collects UDP packets to these ports of the
 * address as they pass the device, says `collecting` when it begins, and goes on collecting while it
 * sends; when none passes for 10 seconds at the beginning it ends without having sent any. `look` sends
 * nothing: it says how many of so many packets to these ports can be read, that is, have 32 bytes 0xA5 in a
 * row, as the guard zones of c-tests/mpi have. `listen`
 * counts what comes, and ends when nothing has come for 3 seconds. All print what they did: lines of
 * `KIND NUMBER`, then `sent NUMBER` or `received NUMBER`. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The header of the protocol: its length, and the version that its first byte names. */
enum { HEADER = 64, VERSION = 3 };
enum { FRAME_PAYLOAD = 1472, LONGEST = 65507, BATCH = 64, FRAME = 9014 + 4, KEPT = 1024 };

static uint64_t state = 88172645463325252u;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t limit)
{
    return (size_t)(draw() >> 16) % limit;
}

static void randomise(unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = draw() * 0x9E3779B97F4A7C15u;
        memcpy(bytes + i, &word, n - i < 8 ? n - i : 8);
    }
}

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "forge: %s: %s\n", what, strerror(errno));
    exit(1);
}

_Noreturn static void usage(void)
{
    fprintf(stderr, "usage: forge send ADDRESS FIRST-PORT LAST-PORT COUNT [SEED]\n"
                    "       forge replay DEVICE ADDRESS FIRST-PORT LAST-PORT COUNT [SEED]\n"
                    "       forge look DEVICE ADDRESS FIRST-PORT LAST-PORT COUNT\n"
                    "       forge listen ADDRESS PORT\n");
    exit(2);
}

static socklen_t address_of(const char *text, int port, struct sockaddr_storage *address)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return sizeof *v6;
    }
    fprintf(stderr, "forge: %s is no address\n", text);
    exit(2);
}

/* --- from a socket */

enum kind { RANDOM, TINY, HEADED, CUT, OVERLONG, KINDS };

static const char *const kind_names[KINDS] = { "random", "tiny", "headed", "cut", "overlong" };

/* Gives the length. Overlong ones are fragments by the dozen, and therefore rare. */
static size_t forge(enum kind kind, unsigned char *bytes)
{
    size_t n = 0;
    switch (kind) {
    case RANDOM: n = below(FRAME_PAYLOAD + 1); break;
    case TINY: n = below(8); break;
    case HEADED: n = HEADER + (below(2) ? below(FRAME_PAYLOAD - HEADER + 1) : 0); break;
    case CUT: n = below(HEADER); break;
    case OVERLONG: n = FRAME_PAYLOAD + 1 + below(LONGEST - FRAME_PAYLOAD); break;
    case KINDS: abort();
    }
    randomise(bytes, n < 2048 ? n : 2048);
    if (n > 0 && kind >= HEADED)
        bytes[0] = VERSION;
    /* Small numbers lie in wait where a length, a kind or an index is expected. */
    if (kind == HEADED)
        for (int i = 0; i < 8; i++)
            bytes[1 + below(HEADER - 1)] = (unsigned char)below(4);
    return n;
}

static unsigned long long send_forged(const char *to, int first, int last, unsigned long long count)
{
    static unsigned char bytes[BATCH][LONGEST + 8];
    static struct mmsghdr messages[BATCH];
    static struct iovec pieces[BATCH];
    static struct sockaddr_storage targets[BATCH];
    static enum kind kinds[BATCH];
    unsigned long long sent = 0, refused = 0, of_kind[KINDS] = { 0 };
    struct sockaddr_storage target;
    socklen_t length = address_of(to, first, &target);
    int port = first, fd = socket(target.ss_family, SOCK_DGRAM, 0);
    if (fd < 0)
        fail("socket");
    while (sent < count && refused < count + 1000000) {
        int batch = count - sent < BATCH ? (int)(count - sent) : BATCH, done;
        for (int i = 0; i < batch; i++) {
            kinds[i] = below(256) == 0 ? OVERLONG : (enum kind)below(OVERLONG);
            pieces[i] = (struct iovec){ bytes[i], forge(kinds[i], bytes[i]) };
            address_of(to, port, &targets[i]);
            messages[i].msg_hdr = (struct msghdr){ .msg_name = &targets[i], .msg_namelen = length,
                                                   .msg_iov = &pieces[i], .msg_iovlen = 1 };
            port = port < last ? port + 1 : first;
        }
        done = sendmmsg(fd, messages, (unsigned)batch, 0);
        if (done <= 0) {
            if (errno != ECONNREFUSED && errno != ENOBUFS && errno != EAGAIN && errno != EINTR &&
                errno != ENETUNREACH && errno != EHOSTUNREACH)
                fail("sendmmsg");
            refused++;
            continue;
        }
        for (int i = 0; i < done; i++)
            of_kind[kinds[i]]++;
        sent += (unsigned long long)done;
    }
    close(fd);
    for (int i = 0; i < KINDS; i++)
        printf("%s %llu\n", kind_names[i], of_kind[i]);
    return sent;
}

/* --- what was seen on a device */

/* A frame with UDP in it: where its parts begin. */
struct seen {
    size_t length, ip, udp, payload;
    unsigned char bytes[FRAME];
};

enum change { AS_IT_WAS, BIT_FLIPPED, SHORTENED, LENGTHENED, BYTES_SWAPPED, HEADER_ONLY, RANDOM_BODY, CHANGES };

static const char *const change_names[CHANGES] = {
    "as-it-was", "bit-flipped", "shortened", "lengthened", "bytes-swapped", "header-only", "random-body",
};

static uint32_t add_words(uint32_t sum, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    if (n % 2)
        sum += (uint32_t)bytes[n - 1] << 8;
    return sum;
}

static void put_16(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 8);
    at[1] = (unsigned char)value;
}

static uint16_t folded(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xFFFF) + (sum >> 16);
    return (uint16_t)~sum;
}

/* Lengths and checksums as they must be, so that the kernel there lets it through. What a veth
 * carries has no finished checksum. */
static void seal(struct seen *f)
{
    unsigned char *ip = f->bytes + f->ip, *udp = f->bytes + f->udp;
    size_t n = f->length - f->udp;
    uint32_t sum;
    put_16(udp + 4, (uint32_t)n);
    put_16(udp + 6, 0);
    if (ip[0] >> 4 == 4) {
        put_16(ip + 2, (uint32_t)(f->length - f->ip));
        put_16(ip + 10, 0);
        put_16(ip + 10, folded(add_words(0, ip, f->udp - f->ip)));
        sum = add_words(0, ip + 12, 8);
    } else {
        put_16(ip + 4, (uint32_t)n);
        sum = add_words(0, ip + 8, 32);
    }
    sum = folded(add_words(sum + IPPROTO_UDP + (uint32_t)n, udp, n));
    put_16(udp + 6, sum == 0 ? 0xFFFF : sum);
}

/* Whole UDP packets to that address and these ports; fragments are left alone. */
static bool is_wanted(struct seen *f, const struct sockaddr_storage *to, int first, int last)
{
    const unsigned char *ip = f->bytes + ETH_HLEN;
    int type, port;
    if (f->length < ETH_HLEN + 20 + 8)
        return false;
    type = f->bytes[12] << 8 | f->bytes[13];
    f->ip = ETH_HLEN;
    if (type == ETHERTYPE_IP && to->ss_family == AF_INET) {
        f->udp = f->ip + (ip[0] & 15) * 4u;
        if (ip[9] != IPPROTO_UDP || (ip[6] & 0x3F) != 0 || ip[7] != 0 ||
            memcmp(ip + 16, &((const struct sockaddr_in *)to)->sin_addr, 4) != 0)
            return false;
    } else if (type == ETHERTYPE_IPV6 && to->ss_family == AF_INET6) {
        f->udp = f->ip + 40;
        if (f->length < f->udp + 8 || ip[6] != IPPROTO_UDP ||
            memcmp(ip + 24, &((const struct sockaddr_in6 *)to)->sin6_addr, 16) != 0)
            return false;
    } else {
        return false;
    }
    f->payload = f->udp + 8;
    if (f->length < f->payload)
        return false;
    port = f->bytes[f->udp + 2] << 8 | f->bytes[f->udp + 3];
    return port >= first && port <= last;
}

static void alter(struct seen *f, enum change change)
{
    unsigned char *body = f->bytes + f->payload;
    size_t n = f->length - f->payload, header = n < HEADER ? n : HEADER;
    switch (change) {
    case AS_IT_WAS: break;
    case BIT_FLIPPED:
        if (n > 0) {
            /* Half of them in the header. */
            size_t at = below(below(2) && header > 0 ? header : n);
            body[at] = (unsigned char)(body[at] ^ 1u << below(8));
        }
        break;
    case SHORTENED: f->length = f->payload + (n > 0 ? below(n) : 0); break;
    case LENGTHENED:
        if (n < FRAME_PAYLOAD) {
            size_t more = 1 + below(FRAME_PAYLOAD - n);
            randomise(body + n, more);
            f->length += more;
        }
        break;
    case BYTES_SWAPPED:
        if (header > 1) {
            size_t a = below(header), b = below(header);
            unsigned char byte = body[a];
            body[a] = body[b];
            body[b] = byte;
        }
        break;
    case HEADER_ONLY: f->length = f->payload + header; break;
    case RANDOM_BODY: randomise(body + header, n - header); break;
    case CHANGES: abort();
    }
}

/* A socket that sees all that passes a device. */
static int watch(const char *device)
{
    struct sockaddr_ll link = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
    int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    link.sll_ifindex = (int)if_nametoindex(device);
    if (fd < 0 || link.sll_ifindex == 0 || bind(fd, (struct sockaddr *)&link, sizeof link) != 0)
        fail(device);
    printf("collecting\n");
    fflush(stdout);
    return fd;
}

static bool can_be_read(const unsigned char *bytes, size_t n)
{
    size_t row = 0;
    for (size_t i = 0; i < n && row < 32; i++)
        row = bytes[i] == 0xA5 ? row + 1 : 0;
    return row == 32;
}

/* Looks at so many packets, or until none has passed for ten seconds. */
static void look(const char *device, const char *to, int first, int last, unsigned long long count)
{
    static struct seen frame;
    unsigned long long seen = 0, plain = 0;
    struct sockaddr_storage target;
    struct pollfd ready = { .fd = watch(device), .events = POLLIN };
    address_of(to, first, &target);
    while (seen < count && poll(&ready, 1, 10000) > 0) {
        ssize_t n = recv(ready.fd, frame.bytes, sizeof frame.bytes, 0);
        frame.length = n > 0 ? (size_t)n : 0;
        if (!is_wanted(&frame, &target, first, last))
            continue;
        seen++;
        plain += can_be_read(frame.bytes + frame.payload, frame.length - frame.payload);
    }
    close(ready.fd);
    printf("plain %llu\nseen %llu\n", plain, seen);
}

/* The socket that sees is the one that sends, because it does not see what it has sent itself. */
static unsigned long long replay(const char *device, const char *to, int first, int last, unsigned long long count)
{
    static struct seen kept[KEPT], frame;
    unsigned long long sent = 0, collected = 0, of_change[CHANGES] = { 0 };
    struct sockaddr_storage target;
    int fd = watch(device);
    address_of(to, first, &target);
    while (sent < count) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        if (collected == 0 && poll(&ready, 1, 10000) == 0)
            break;
        for (int i = 0; i < 8; i++) {
            ssize_t n = recv(fd, frame.bytes, sizeof frame.bytes, MSG_DONTWAIT);
            if (n <= 0)
                break;
            frame.length = (size_t)n;
            if (is_wanted(&frame, &target, first, last)) {
                /* The first half is kept, for replays of the oldest; the rest makes room for new. */
                size_t at = collected < KEPT ? (size_t)collected : KEPT / 2 + below(KEPT / 2);
                kept[at] = frame;
                collected++;
            }
        }
        if (collected == 0)
            continue;
        for (int i = 0; i < BATCH && sent < count; i++) {
            const struct seen *original = &kept[below(collected < KEPT ? (size_t)collected : KEPT)];
            enum change change = (enum change)below(CHANGES);
            frame.length = original->length;
            frame.ip = original->ip;
            frame.udp = original->udp;
            frame.payload = original->payload;
            memcpy(frame.bytes, original->bytes, original->length);
            alter(&frame, change);
            seal(&frame);
            if (send(fd, frame.bytes, frame.length, 0) < 0) {
                if (errno != ENOBUFS && errno != EAGAIN && errno != ENETDOWN && errno != EMSGSIZE)
                    fail("send");
                continue;
            }
            of_change[change]++;
            sent++;
        }
    }
    close(fd);
    printf("collected %llu\n", collected);
    for (int i = 0; i < CHANGES; i++)
        printf("%s %llu\n", change_names[i], of_change[i]);
    return sent;
}

/* --- the other side, to test the forger */

static void count_arrivals(const char *at, int port)
{
    static unsigned char bytes[LONGEST + 1];
    unsigned long long received = 0, headed = 0, shorter = 0, longer = 0;
    struct sockaddr_storage address;
    socklen_t length = address_of(at, port, &address);
    int fd = socket(address.ss_family, SOCK_DGRAM, 0), wait = 60000;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0)
        fail("bind");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &(int){ 8 << 20 }, sizeof(int));
    printf("listening\n");
    fflush(stdout);
    for (;;) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        ssize_t n;
        if (poll(&ready, 1, wait) <= 0)
            break;
        n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0)
            continue;
        wait = 3000;
        received++;
        headed += n >= HEADER && bytes[0] == VERSION;
        shorter += n < HEADER;
        longer += n > FRAME_PAYLOAD;
    }
    printf("headed %llu\nshorter %llu\nlonger %llu\nreceived %llu\n", headed, shorter, longer, received);
}

int main(int argc, char **argv)
{
    bool looks = argc == 7 && strcmp(argv[1], "look") == 0;
    bool again = looks || (argc > 1 && strcmp(argv[1], "replay") == 0);
    int at = again ? 3 : 2;
    if (argc == 4 && strcmp(argv[1], "listen") == 0) {
        count_arrivals(argv[2], atoi(argv[3]));
        return 0;
    }
    if (argc < at + 4 || argc > at + 5 || (!again && strcmp(argv[1], "send") != 0))
        usage();
    if (argc == at + 5)
        state = strtoull(argv[at + 4], NULL, 0) * 2 + 1;
    {
        int first = atoi(argv[at + 1]), last = atoi(argv[at + 2]);
        unsigned long long count = strtoull(argv[at + 3], NULL, 0), sent;
        if (first < 1 || last > 65535 || last < first)
            usage();
        if (looks) {
            look(argv[2], argv[at], first, last, count);
            return 0;
        }
        sent = again ? replay(argv[2], argv[at], first, last, count)
                     : send_forged(argv[at], first, last, count);
        printf("sent %llu\n", sent);
        return sent < count;
    }
}
