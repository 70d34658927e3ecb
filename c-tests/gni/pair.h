/* What programs share that have two ends: in two processes, or two endpoints of one, or one to itself. */
#ifndef HAWSER_GNI_PAIR_H
#define HAWSER_GNI_PAIR_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* An endpoint with what it needs, and who is at the other end of it. */
struct end {
    struct fid_ep *ep;
    struct fid_cq *tx, *rx;
    struct fid_cntr *sent, *received;
    /* Those have operations on memory only. */
    struct fid_cntr *reads, *writes, *remote_reads, *remote_writes;
    struct fid_av *av;
    fi_addr_t peer;
};

/* What stands in for a process: this one's end. The other's is there too where both are one process. */
static struct end ends[2];
static struct end *const here = &ends[0];
static int wire[2] = {-1, -1}, is_child, is_together, is_self;
/* With what they are opened. */
static uint64_t selective, childs_caps, caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE;
static int mr_mode;
static enum fi_wait_obj wait_obj = FI_WAIT_UNSPEC;
static enum fi_progress progress = FI_PROGRESS_MANUAL;

static struct fid_cntr *a_counter(struct fid_ep *ep, uint64_t of)
{
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *counter = NULL;
    NEED(fi_cntr_open(domain, &attr, &counter, NULL));
    NEED(fi_ep_bind(ep, &counter->fid, of));
    return counter;
}

static void open_end(struct end *end)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait_obj};
    NEED(fi_cq_open(domain, &attr, &end->tx, NULL));
    NEED(fi_cq_open(domain, &attr, &end->rx, NULL));
    end->av = an_av(FI_AV_MAP, 0);
    NEED(fi_endpoint(domain, info, &end->ep, NULL));
    NEED(fi_ep_bind(end->ep, &end->av->fid, 0));
    NEED(fi_ep_bind(end->ep, &end->tx->fid, FI_TRANSMIT | selective));
    NEED(fi_ep_bind(end->ep, &end->rx->fid, FI_RECV | selective));
    end->sent = a_counter(end->ep, FI_SEND);
    end->received = a_counter(end->ep, FI_RECV);
    if (caps & (FI_RMA | FI_ATOMIC)) {
        end->reads = a_counter(end->ep, FI_READ);
        end->writes = a_counter(end->ep, FI_WRITE);
        end->remote_reads = a_counter(end->ep, FI_REMOTE_READ);
        end->remote_writes = a_counter(end->ep, FI_REMOTE_WRITE);
    }
    NEED(fi_enable(end->ep));
}

static void close_end(struct end *end)
{
    struct fid_cntr *counters[] = {end->sent, end->received, end->reads, end->writes, end->remote_reads, end->remote_writes};
    IS(fi_close(&end->ep->fid), 0);
    IS(fi_close(&end->av->fid), 0);
    IS(fi_close(&end->tx->fid), 0);
    IS(fi_close(&end->rx->fid), 0);
    for (int i = 0; i < 6; i++)
        if (counters[i])
            IS(fi_close(&counters[i]->fid), 0);
}

static void name_of(struct end *end, char *name)
{
    size_t length = 48;
    NEED(fi_getname(&end->ep->fid, name, &length));
    IS(length, 48);
}

static void insert(struct end *end, const char *name)
{
    IS(fi_av_insert(end->av, name, 1, &end->peer, 0, NULL), 1);
}

/* Both have said the same by then. */
static void meet(void)
{
    char said = 'x';
    if (wire[0] < 0)
        return;
    NEED(write(wire[0], &said, 1) != 1);
    while (recv(wire[0], &said, 1, MSG_DONTWAIT) != 1) {
        fi_cq_read(here->tx, NULL, 0);
        struct timespec nap = {0, 50000};
        nanosleep(&nap, NULL);
    }
}

static pid_t child;

static inline void begin(const char *how)
{
    char name[48], other[48];
    is_together = how && strcmp(how, "together") == 0;
    is_self = how && strcmp(how, "self") == 0;
    if (!is_together && !is_self) {
        NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, wire));
        child = fork();
        NEED(child < 0);
        is_child = child == 0;
        NEED(close(wire[!is_child]));
        wire[0] = wire[is_child];
        if (is_child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            go_away();
        }
    }
    struct fi_info *hints = wish();
    hints->caps = is_child && childs_caps ? childs_caps : caps;
    hints->domain_attr->mr_mode = mr_mode;
    hints->domain_attr->data_progress = progress;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    open_domain(API, hints);
    open_end(here);
    name_of(here, name);
    if (is_self) {
        insert(here, name);
    } else if (is_together) {
        open_end(&ends[1]);
        name_of(&ends[1], other);
        insert(here, other);
        insert(&ends[1], name);
    } else {
        NEED(write(wire[0], name, 48) != 48);
        NEED(recv(wire[0], other, 48, MSG_WAITALL) != 48);
        insert(here, other);
    }
}

static inline int end(void)
{
    meet();
    close_end(here);
    if (is_together)
        close_end(&ends[1]);
    close_domain();
    if (child > 0) {
        int status;
        NEED(waitpid(child, &status, 0) != child);
        IS(status, 0);
    }
    if (is_child)
        return wrong != 0;
    return verdict();
}

/* The sending and the receiving end of this process, if it has them. The parent sends first. */
static inline struct end *sender(int turn)
{
    if (is_self)
        return here;
    if (is_together)
        return &ends[turn & 1];
    return (turn & 1) == is_child ? here : NULL;
}

static inline struct end *receiver(int turn)
{
    return is_self ? here : sender(turn + 1);
}

/* Makes progress at all ends. */
static inline void stir(void)
{
    fi_cq_read(here->rx, NULL, 0);
    fi_cq_read(here->tx, NULL, 0);
}

/* Until the call is not refused for want of room. */
#define POST(call)                         \
    do {                                   \
        ssize_t posted;                    \
        while ((posted = (call)) == -FI_EAGAIN) \
            stir();                        \
        IS(posted, 0);                     \
    } while (0)

/* The next entry of a queue. */
static inline struct fi_cq_tagged_entry next(struct fid_cq *cq, fi_addr_t *source)
{
    struct fi_cq_tagged_entry entry = {0};
    fi_addr_t from = FI_ADDR_UNSPEC;
    ssize_t read;
    while ((read = fi_cq_readfrom(cq, &entry, 1, &from)) == -FI_EAGAIN)
        ;
    IS(read, 1);
    if (read == -FI_EAVAIL) {
        struct fi_cq_err_entry failed = {0};
        fi_cq_readerr(cq, &failed, 0);
        printf("error %d\n", failed.err);
        exit(1);
    }
    if (source)
        *source = from;
    return entry;
}

static inline struct fi_cq_err_entry next_error(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    ssize_t read;
    while ((read = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
        ;
    IS(read, -FI_EAVAIL);
    IS(fi_cq_readerr(cq, &failed, 0), 1);
    return failed;
}

static inline int is_empty(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry;
    return fi_cq_read(cq, &entry, 1) == -FI_EAGAIN;
}

static inline void fill(unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char) (seed + i * 7 + i / 251);
}

static inline unsigned char *some(size_t length, unsigned seed)
{
    unsigned char *bytes = malloc(length + 1);
    fill(bytes, length, seed);
    return bytes;
}

static inline int same(const unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (unsigned char) (seed + i * 7 + i / 251))
            return 0;
    return 1;
}

/* Memory that the other end may reach, and what it says to reach it. */
struct region {
    struct fid_mr *mr;
    unsigned char *bytes;
    size_t length;
};

struct far {
    uint64_t key, base;
};

enum { BY_ADDRESS = MR_BASIC };
static const uint64_t ANY_ACCESS = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

static inline struct region offer(void *bytes, size_t length, uint64_t access, uint64_t key)
{
    struct region region = {NULL, bytes, length};
    NEED(fi_mr_reg(domain, bytes, length, access, 0, key, 0, &region.mr, NULL));
    return region;
}

static inline struct far own(const struct region *region)
{
    return (struct far){fi_mr_key(region->mr), mr_mode == BY_ADDRESS ? (uintptr_t) region->bytes : 0};
}

/* Tells the other process of a region, and hears of its. Within a process they are one. */
static inline struct far exchange(const struct region *region)
{
    struct far mine = own(region), other = mine;
    if (wire[0] >= 0) {
        NEED(write(wire[0], &mine, sizeof(mine)) != sizeof(mine));
        for (size_t got = 0; got < sizeof(other);) {
            ssize_t here_now = recv(wire[0], (char *) &other + got, sizeof(other) - got, MSG_DONTWAIT);
            got += here_now > 0 ? (size_t) here_now : 0;
            stir();
        }
    }
    return other;
}

#endif
