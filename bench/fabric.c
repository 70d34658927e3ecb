/* Tagged messages between two processes over a provider of libfabric, a core each, printed as pinned.h says.
 *
 *     fabric [-d FD] [-p] [-f FACTOR] [-m MIN] [-M MAX] [-t SECONDS] PROVIDER speed
 *     fabric ... PROVIDER posted|unexpected N
 *     fabric ... PROVIDER memory PEERS
 *     fabric ... PROVIDER idle SECONDS
 *
 * -d            the second process is in the network namespace of that descriptor
 * -p            all progress is the program's: it asks for FI_PROGRESS_MANUAL of connections, too
 * -f, -m, -M    sizes, from 4 MiB down to 8 bytes by factors of 2, and the least in any case
 * -t            seconds for a figure
 *
 * speed         latency, bandwidth and message rate; what may be injected is, as Open MPI does
 * posted        the latency of 8 bytes while N receives wait for other tags on each side
 * unexpected    the latency of 8 bytes while N messages wait on each side that nobody has asked for
 * memory        `memory peers=N inserted=BYTES sent=BYTES`: what a process takes more for each peer that it has inserted
 *               into its address vector, and for each that it has then sent a message to and had one of
 * idle          `idle seconds=S alone_us=.. connected_us=..`: processor time with FI_PROGRESS_AUTO while the program sleeps,
 *               before and after its first messages
 *
 * What a provider does not offer is `unable WHAT`. */

#define _GNU_SOURCE
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sys/resource.h>

#include "pinned.h"

#define TAG (1ull << 40)       /* of what is measured; others have smaller ones */
#define GIVES_UP 3.0           /* seconds in which nothing can be posted */
#define NAME 256

#define NEED(call)                                                         \
    do {                                                                   \
        int code_ = (int)(call);                                           \
        if (code_ != 0) {                                                  \
            fprintf(stderr, "fabric: %s: %s\n", #call, fi_strerror(-code_)); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *tx, *rx;
static struct fid_ep *ep;
static fi_addr_t peer;
static size_t inject_size;
static size_t sends, receives; /* that have not ended */

/* Ends both with the reason why nothing is measured; neither goes on. */
static void unable(const char *what)
{
    while (rank == 1)
        pause();
    printf("unable %s\ncheck messages=0 wrong=0\n", what);
    exit(0);
}

static struct fid_ep *open_endpoint(size_t places)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE, .size = places};
    struct fid_ep *one;
    if (!tx) {
        NEED(fi_cq_open(domain, &attr, &tx, NULL));
        NEED(fi_cq_open(domain, &attr, &rx, NULL));
    }
    NEED(fi_endpoint(domain, info, &one, NULL));
    NEED(fi_ep_bind(one, &av->fid, 0));
    NEED(fi_ep_bind(one, &tx->fid, FI_TRANSMIT));
    NEED(fi_ep_bind(one, &rx->fid, FI_RECV));
    NEED(fi_enable(one));
    return one;
}

static void open_all(const char *provider, enum fi_progress control, enum fi_progress data, size_t places)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_av_attr attr = {0};
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = control;
    hints->domain_attr->data_progress = data;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(provider);
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    if (fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) != 0)
        unable("fi_getinfo");
    fi_freeinfo(hints);
    inject_size = info->tx_attr->inject_size;
    NEED(fi_fabric(info->fabric_attr, &fabric, NULL));
    NEED(fi_domain(fabric, info, &domain, NULL));
    attr.type = info->domain_attr->av_type;
    NEED(fi_av_open(domain, &attr, &av, NULL));
    ep = open_endpoint(places);
}

/* Each has the other's name. */
static void connect_both(void)
{
    char name[NAME] = {0}, far[NAME];
    size_t length = sizeof name;
    NEED(fi_getname(&ep->fid, name, &length));
    tell(name, sizeof name);
    hear(far, sizeof far);
    NEED(fi_av_insert(av, far, 1, &peer, 0, NULL) != 1);
}

static void close_all(void)
{
    fi_close(&ep->fid);
    fi_close(&tx->fid);
    fi_close(&rx->fid);
    fi_close(&av->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    fi_freeinfo(info);
}

/* Takes what has ended off a queue. */
static size_t look(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entries[16];
    struct fi_cq_err_entry failed = {0};
    ssize_t got = fi_cq_read(cq, entries, 16);
    if (got == -FI_EAVAIL) {
        fi_cq_readerr(cq, &failed, 0);
        fprintf(stderr, "fabric: an operation failed: %s\n", fi_strerror(failed.err));
        exit(1);
    }
    if (got < 0 && got != -FI_EAGAIN)
        NEED(got);
    return got > 0 ? (size_t)got : 0;
}

static void stir(void)
{
    sends -= look(tx);
    receives -= look(rx);
}

/* Until the call is not refused for want of room; 0 if it always is. */
#define POSTED(call)                                                  \
    ({                                                                \
        ssize_t answer;                                               \
        double since = 0;                                             \
        while ((answer = (call)) == -FI_EAGAIN) {                     \
            stir();                                                   \
            if (since == 0)                                           \
                since = now();                                        \
            else if (now() - since > GIVES_UP)                        \
                break;                                                \
        }                                                             \
        if (answer != -FI_EAGAIN)                                     \
            NEED(answer);                                             \
        answer == 0;                                                  \
    })

#define POST(call) \
    do {           \
        if (!POSTED(call)) { fprintf(stderr, "fabric: no room: %s\n", #call); exit(1); } \
    } while (0)

static void receive(int size, int at)
{
    POST(fi_trecv(ep, incoming + place(size, at), (size_t)size, NULL, FI_ADDR_UNSPEC, TAG, 0, NULL));
    receives++;
}

static void send_one(int size, int at)
{
    if ((size_t)size <= inject_size) {
        POST(fi_tinject(ep, outgoing + place(size, at), (size_t)size, peer, TAG));
        return;
    }
    POST(fi_tsend(ep, outgoing + place(size, at), (size_t)size, NULL, peer, TAG, NULL));
    sends++;
}

/* Until so many receives are left; those that wait for other tags are none of `receives`. */
static void until_received(size_t left)
{
    while (receives > left)
        receives -= look(rx);
}

static void until_sent(void)
{
    while (sends > 0)
        stir();
}

static void stamp(unsigned char *message, int size, unsigned serial)
{
    message[0] = message[size - 1] = (unsigned char)serial;
}

static void check_stamp(const unsigned char *message, int size, unsigned serial)
{
    checked++;
    wrong += message[0] != (unsigned char)serial || message[size - 1] != (unsigned char)serial;
}

static double ping_pong(int size, int count)
{
    double start = now();
    for (int i = 0; i < count; i++) {
        receive(size, 0);
        stamp(outgoing, size, (unsigned)(2 * i + rank));
        if (rank == 0)
            send_one(size, 0);
        until_received(0);
        check_stamp(incoming, size, (unsigned)(2 * i + !rank));
        if (rank == 1)
            send_one(size, 0);
        until_sent();
    }
    return now() - start;
}

/* Windows of messages one way, each answered by a byte. */
static double stream(int size, int count)
{
    double start = now();
    for (int i = 0; i < count; i++) {
        if (rank == 0) {
            receive(1, 0);
            for (int at = 0; at < window_of(size); at++)
                send_one(size, at);
            until_sent();
            until_received(0);
        } else {
            for (int at = 0; at < window_of(size); at++)
                receive(size, at);
            until_received(0);
            send_one(1, 0);
            until_sent();
        }
    }
    return now() - start;
}

/* A message each way, every byte checked. */
static void check_whole(int size)
{
    for (int i = 0; i < size; i++)
        outgoing[i] = (unsigned char)((i + size) * 31 + (i >> 8));
    memset(incoming, 0, (size_t)size);
    receive(size, 0);
    if (rank == 0)
        send_one(size, 0);
    until_received(0);
    if (rank == 1)
        send_one(size, 0);
    until_sent();
    checked++;
    wrong += memcmp(outgoing, incoming, (size_t)size) != 0;
}

static void speed(int first, int last, int factor)
{
    int least = last;
    while (least / factor >= first)
        least /= factor;
    for (int64_t size = first; size <= last; size = size < least ? least : size * factor) {
        check_whole((int)size);
        latency(ping_pong, (int)size);
        bandwidth(stream, (int)size);
        check_whole((int)size);
    }
    if (first <= RATE_SIZE)
        throughput(stream, "rate", "msg_s", 1, RATE_SIZE);
}

static void matching(int is_posted, int count)
{
    static unsigned char nothing[RATE_SIZE];
    int done = 0;
    check_whole(RATE_SIZE);
    for (; done < count; done++) {
        int is_done = is_posted ? POSTED(fi_trecv(ep, nothing, sizeof nothing, NULL, FI_ADDR_UNSPEC, (uint64_t)done, 0, NULL))
                                : POSTED(fi_tinject(ep, nothing, sizeof nothing, peer, (uint64_t)done));
        if (!is_done) {
            char what[64];
            snprintf(what, sizeof what, "refused=%d", done);
            unable(what);
        }
    }
    /* A message that comes behind those says that they are there. */
    check_whole(RATE_SIZE);
    latency(ping_pong, RATE_SIZE);
}

/* Bytes that this process has in memory, those of files and shared ones included. */
static double resident(void)
{
    long all, here;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &here) != 2)
        fail("statm");
    fclose(file);
    return (double)here * (double)sysconf(_SC_PAGESIZE);
}

/* The second process has all the peers. */
static void memory(int count)
{
    char (*names)[NAME] = calloc((size_t)count, NAME);
    fi_addr_t *peers = calloc((size_t)count, sizeof *peers), home = peer;
    struct fid_ep **all = calloc((size_t)count, sizeof(struct fid_ep *)), *first = ep;
    double before, inserted = 0, sent = 0;
    check_whole(RATE_SIZE);
    for (int i = 0; i < count && rank == 1; i++) {
        size_t length = NAME;
        all[i] = open_endpoint(0);
        NEED(fi_getname(&all[i]->fid, names[i], &length));
        tell(names[i], NAME);
    }
    for (int i = 0; i < count && rank == 0; i++)
        hear(names[i], NAME);
    memset(peers, 1, (size_t)count * sizeof *peers);
    before = resident();
    for (int i = 0; i < count && rank == 0; i++)
        NEED(fi_av_insert(av, names[i], 1, &peers[i], 0, NULL) != 1);
    inserted = (resident() - before) / count;
    before = resident();
    for (int i = 0; i < count; i++) {
        receive(RATE_SIZE, 0);
        if (rank == 0) {
            peer = peers[i];
            send_one(RATE_SIZE, 0);
        } else {
            ep = all[i];
            receives--;
            receive(RATE_SIZE, 0);
        }
        until_received(0);
        if (rank == 1)
            send_one(RATE_SIZE, 0);
        until_sent();
    }
    sent = (resident() - before) / count;
    ep = first;
    peer = home;
    if (rank == 0)
        printf("memory peers=%d inserted=%.0f sent=%.0f\n", count, inserted, sent);
    meet();
    for (int i = 0; i < count && rank == 1; i++)
        fi_close(&all[i]->fid);
}

/* Microseconds of processor time while the program sleeps. */
static double asleep(int seconds)
{
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    sleep((unsigned)seconds);
    getrusage(RUSAGE_SELF, &after);
    return (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1e6 +
           (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec);
}

static void idle(int seconds)
{
    double alone = asleep(seconds);
    meet();
    check_whole(RATE_SIZE);
    meet();
    double connected = asleep(seconds);
    if (rank == 0)
        printf("idle seconds=%d alone_us=%.0f connected_us=%.0f\n", seconds, alone, connected);
    meet();
}

int main(int argc, char **argv)
{
    int option, away = -1, first = 8, last = LARGEST, factor = 2, number;
    enum fi_progress control = FI_PROGRESS_UNSPEC, data = FI_PROGRESS_MANUAL;
    while ((option = getopt(argc, argv, "d:pf:m:M:t:")) != -1) {
        switch (option) {
        case 'd': away = atoi(optarg); break;
        case 'p': control = FI_PROGRESS_MANUAL; break;
        case 'f': factor = atoi(optarg); break;
        case 'm': first = atoi(optarg); break;
        case 'M': last = atoi(optarg); break;
        case 't': patience = atof(optarg); break;
        default: return 2;
        }
    }
    argv += optind;
    argc -= optind;
    if (argc < 2 || factor < 2 || first < 1 || last > LARGEST)
        return 2;
    number = argc > 2 ? atoi(argv[2]) : 0;
    if (strcmp(argv[1], "idle") == 0)
        control = data = FI_PROGRESS_AUTO;
    part(away);
    open_all(argv[0], control, data, (size_t)number + 4096);
    connect_both();
    if (strcmp(argv[1], "speed") == 0)
        speed(first, last, factor);
    else if (strcmp(argv[1], "memory") == 0)
        memory(number);
    else if (strcmp(argv[1], "idle") == 0)
        idle(number);
    else
        matching(strcmp(argv[1], "posted") == 0, number);
    int status = finish();
    close_all();
    return status;
}
