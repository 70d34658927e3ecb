/* Messages both ways between two processes while something happens to the network.
 *
 *     faults goes-on FILE     until the file is there: none is lost
 *     faults ends SECONDS     until both hear that the other is gone, which is not before it was silent for so long
 *     faults computes SECONDS  to a child that reads nothing for so long: none is lost
 *     faults leaves SECONDS   to a child that reads nothing any more, until the parent hears that it is gone
 */

#include "pair.h"

enum { LONGEST = 300000 };
static const size_t lengths[] = {8, 4096, 70, 40000, LONGEST, 1, 20000};
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths) };
static const uint64_t LAST = 1ull << 63;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

/* A message there and one back; the tag of what has come, or the negative code of why not. */
static int exchange_one(uint64_t number, uint64_t tag, uint64_t *come)
{
    static unsigned char out[LONGEST], in[LONGEST];
    size_t length = lengths[number % LENGTHS];
    int is_sent = 0, is_received = 0;
    fill(out, length, (unsigned) number + (unsigned) is_child);
    memset(in, 0, length);
    POST(fi_trecv(here->ep, in, length, NULL, here->peer, number, LAST, in));
    ssize_t posted;
    while ((posted = fi_tsend(here->ep, out, length, NULL, here->peer, tag, out)) == -FI_EAGAIN)
        stir();
    if (posted != 0)
        return (int) posted;
    while (!is_sent || !is_received) {
        struct fid_cq *cqs[] = {here->tx, here->rx};
        for (int i = 0; i < 2; i++) {
            struct fi_cq_tagged_entry entry;
            ssize_t read = fi_cq_read(cqs[i], &entry, 1);
            if (read == -FI_EAVAIL) {
                struct fi_cq_err_entry failed = {0};
                IS(fi_cq_readerr(cqs[i], &failed, 0), 1);
                printf("%s: %s\n", i == 0 ? "sending" : "receiving", fi_strerror(failed.prov_errno));
                return -failed.err;
            }
            if (read != 1)
                continue;
            if (i == 0) {
                is_sent = 1;
            } else {
                is_received = 1;
                *come = entry.tag;
                IS(entry.len, length);
            }
        }
    }
    IS(*come & ~LAST, number);
    HOLDS(same(in, length, (unsigned) number + !is_child));
    return 0;
}

static void goes_on(const char *file)
{
    uint64_t come = 0;
    for (uint64_t number = 0; !(come & LAST); number++) {
        uint64_t tag = number;
        if (!is_child && access(file, F_OK) == 0)
            tag |= LAST;
        int code = exchange_one(number, tag, &come);
        if (code != 0)
            printf("message %llu: %s\n", (unsigned long long) number, fi_strerror(-code));
        NEED(code);
        come |= tag;
    }
}

static void is_cut_off(const char *seconds)
{
    uint64_t come;
    double good = now();
    int code;
    for (uint64_t number = 0; (code = exchange_one(number, number, &come)) == 0; number++)
        good = now();
    double silent = now() - good;
    printf("%s: %s after %.1f s\n", is_child ? "the child" : "the parent", fi_strerror(-code), silent);
    HOLDS(code == -FI_ECONNRESET || code == -FI_ETIMEDOUT);
    /* The kernel's clock of this is not finer; and it is this time, not the two minutes where nothing is said. */
    HOLDS(silent > atof(seconds) - 0.5 && silent < 20 * atof(seconds));
}

/* More bytes than two kernels keep. */
enum { MANY = 600, EACH = 60000 };
static unsigned char bytes[EACH];

/* Messages to the child, until it has said that it has them all; the negative code of why not. */
static int send_many(void)
{
    char word = 0;
    int ended = 0;
    POST(fi_trecv(here->ep, &word, 1, NULL, here->peer, MANY, 0, &word));
    for (uint64_t number = 0; number <= MANY;) {
        struct fi_cq_tagged_entry entry;
        ssize_t posted = number == MANY ? -FI_EAGAIN : fi_tsend(here->ep, bytes, EACH, NULL, here->peer, number, NULL);
        if (posted == 0)
            number++;
        else if (posted != -FI_EAGAIN)
            return (int) posted;
        if (fi_cq_read(here->tx, &entry, 1) == 1)
            ended++;
        ssize_t read = fi_cq_read(here->rx, &entry, 1);
        if (read == 1) {
            IS(word, 'w');
            /* Those that are over by now, and of which nobody has read. */
            while (ended < MANY)
                if (fi_cq_read(here->tx, &entry, 1) == 1)
                    ended++;
            IS(fi_cq_read(here->tx, &entry, 1), -FI_EAGAIN);
            return 0;
        }
        struct fi_cq_err_entry failed = {0};
        if (read == -FI_EAVAIL && fi_cq_readerr(here->rx, &failed, 0) == 1)
            return -failed.err;
    }
    return 0;
}

static void to_who_computes(const char *seconds)
{
    double start = now();
    fill(bytes, EACH, 7);
    if (!is_child) {
        NEED(send_many());
        HOLDS(now() - start > atof(seconds));
        return;
    }
    sleep((unsigned) atoi(seconds));
    for (uint64_t number = 0; number < MANY; number++) {
        static unsigned char in[EACH];
        memset(in, 0, EACH);
        POST(fi_trecv(here->ep, in, EACH, NULL, here->peer, number, 0, in));
        IS(next(here->rx, NULL).len, EACH);
        HOLDS(same(in, EACH, 7));
    }
    POST(fi_tsend(here->ep, "w", 1, NULL, here->peer, MANY, NULL));
    next(here->tx, NULL);
}

/* The child does not read, and the network goes meanwhile. */
static void who_leaves(const char *seconds)
{
    double start = now();
    if (is_child)
        for (;;)
            pause();
    int code = send_many();
    printf("the parent: %s after %.1f s\n", fi_strerror(-code), now() - start);
    HOLDS(code == -FI_ECONNRESET || code == -FI_ETIMEDOUT);
    HOLDS(now() - start > atof(seconds));
    kill(child, SIGKILL);
    NEED(waitpid(child, NULL, 0) != child);
    exit(verdict());
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    setbuf(stdout, NULL);
    begin("apart");
    if (strcmp(argv[1], "goes-on") == 0)
        goes_on(argv[2]);
    else if (strcmp(argv[1], "computes") == 0)
        to_who_computes(argv[2]);
    else if (strcmp(argv[1], "leaves") == 0)
        who_leaves(argv[2]);
    else
        is_cut_off(argv[2]);
    return end();
}
