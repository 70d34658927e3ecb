/* Messages of the provider gni, one subject a run, between two processes; or within one, between two endpoints and of one to
 * itself. The last seven subjects are of two processes.
 *
 *     messages SUBJECT [apart | together | self [auto]]
 *
 * With `auto` the provider makes progress by itself, too.
 */

#include <poll.h>
#include <pthread.h>
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
    struct fid_av *av;
    fi_addr_t peer;
};

/* What stands in for a process: this one's end. The other's is there too where both are one process. */
static struct end ends[2];
static struct end *const here = &ends[0];
static int wire[2] = {-1, -1}, is_child, is_together, is_self, is_auto;
static uint64_t selective;
static enum fi_wait_obj wait_obj = FI_WAIT_UNSPEC;

static void open_end(struct end *end)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait_obj};
    struct fi_cntr_attr counter = {.wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr av = {.type = FI_AV_MAP};
    NEED(fi_cq_open(domain, &attr, &end->tx, NULL));
    NEED(fi_cq_open(domain, &attr, &end->rx, NULL));
    NEED(fi_cntr_open(domain, &counter, &end->sent, NULL));
    NEED(fi_cntr_open(domain, &counter, &end->received, NULL));
    NEED(fi_av_open(domain, &av, &end->av, NULL));
    NEED(fi_endpoint(domain, info, &end->ep, NULL));
    NEED(fi_ep_bind(end->ep, &end->av->fid, 0));
    NEED(fi_ep_bind(end->ep, &end->tx->fid, FI_TRANSMIT | selective));
    NEED(fi_ep_bind(end->ep, &end->rx->fid, FI_RECV | selective));
    NEED(fi_ep_bind(end->ep, &end->sent->fid, FI_SEND));
    NEED(fi_ep_bind(end->ep, &end->received->fid, FI_RECV));
    NEED(fi_enable(end->ep));
}

static void close_end(struct end *end)
{
    IS(fi_close(&end->ep->fid), 0);
    IS(fi_close(&end->av->fid), 0);
    IS(fi_close(&end->tx->fid), 0);
    IS(fi_close(&end->rx->fid), 0);
    IS(fi_close(&end->sent->fid), 0);
    IS(fi_close(&end->received->fid), 0);
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

static void begin(const char *how)
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
    hints->caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    if (is_auto)
        hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
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

static int end(void)
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
static struct end *sender(int turn)
{
    if (is_self)
        return here;
    if (is_together)
        return &ends[turn & 1];
    return (turn & 1) == is_child ? here : NULL;
}

static struct end *receiver(int turn)
{
    return is_self ? here : sender(turn + 1);
}

/* Makes progress at all ends. */
static void stir(void)
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
static struct fi_cq_tagged_entry next(struct fid_cq *cq, fi_addr_t *source)
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

static struct fi_cq_err_entry next_error(struct fid_cq *cq)
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

static int is_empty(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry;
    return fi_cq_read(cq, &entry, 1) == -FI_EAGAIN;
}

static unsigned char *some(size_t length, unsigned seed)
{
    unsigned char *bytes = malloc(length + 1);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char) (seed + i * 7 + i / 251);
    return bytes;
}

static int same(const unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (unsigned char) (seed + i * 7 + i / 251))
            return 0;
    return 1;
}

static const size_t lengths[] = {0, 1, 8, 63, 192, 193, 4095, 4096, 4097, 20000, 65536, 300001, 1 << 20, 5 << 20};
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths) };

/* Every length there and back, tagged and not, expected and not. */
static void lengths_both_ways(void)
{
    static int contexts[2];
    for (int turn = 0; turn < 8 * LENGTHS; turn++) {
        size_t length = lengths[turn / 8];
        int tagged = turn & 2, early = turn & 4;
        struct end *to = receiver(turn), *from = sender(turn);
        unsigned char *out = some(length, turn), *in = calloc(1, length + 1);
        if (to && early) {
            if (tagged)
                POST(fi_trecv(to->ep, in, length, NULL, FI_ADDR_UNSPEC, turn, 0, &contexts[0]));
            else
                POST(fi_recv(to->ep, in, length, NULL, FI_ADDR_UNSPEC, &contexts[0]));
        }
        meet();
        if (from) {
            if (tagged)
                POST(fi_tsend(from->ep, out, length, NULL, from->peer, turn, &contexts[1]));
            else
                POST(fi_send(from->ep, out, length, NULL, from->peer, &contexts[1]));
        }
        if (to && !early) {
            for (int i = 0; i < 500; i++)
                stir();
            if (tagged)
                POST(fi_trecv(to->ep, in, length, NULL, to->peer, turn, 0, &contexts[0]));
            else
                POST(fi_recv(to->ep, in, length, NULL, to->peer, &contexts[0]));
        }
        if (to) {
            fi_addr_t source;
            struct fi_cq_tagged_entry entry = next(to->rx, &source);
            HOLDS(entry.op_context == &contexts[0]);
            IS(entry.len, length);
            IS(entry.flags, FI_RECV | (tagged ? FI_TAGGED : FI_MSG));
            if (tagged)
                IS(entry.tag, turn);
            IS(source, to->peer);
            HOLDS(same(in, length, turn));
        }
        if (from) {
            struct fi_cq_tagged_entry entry = next(from->tx, NULL);
            HOLDS(entry.op_context == &contexts[1]);
            IS(entry.flags, FI_SEND | (tagged ? FI_TAGGED : FI_MSG));
        }
        free(out);
        free(in);
    }
    uint64_t each = is_self ? 8 * LENGTHS : 4 * LENGTHS;
    IS(fi_cntr_read(here->sent), each);
    IS(fi_cntr_read(here->received), each);
    HOLDS(is_empty(here->tx) && is_empty(here->rx));
}

/* All calls that send, with and without data, and all that receive. */
static void calls(void)
{
    char out[3][40], in[3][40];
    for (int turn = 0; turn < 2; turn++) {
        struct end *to = receiver(turn), *from = sender(turn);
        memset(out, 'a' + turn, sizeof(out));
        struct iovec outs[] = {{out[0], 40}, {out[1], 0}, {out[2], 7}}, ins[] = {{in[0], 3}, {in[1], 40}, {in[2], 40}};
        struct fi_msg message = {.msg_iov = outs, .iov_count = 3, .data = 77};
        struct fi_msg_tagged tagged = {.msg_iov = outs, .iov_count = 3, .tag = 9, .data = 78};
        if (from) {
            message.addr = tagged.addr = from->peer;
            message.context = tagged.context = &out[0];
            POST(fi_send(from->ep, out[0], 40, NULL, from->peer, &out[0]));
            POST(fi_sendv(from->ep, outs, NULL, 3, from->peer, &out[0]));
            POST(fi_sendmsg(from->ep, &message, 0));
            POST(fi_sendmsg(from->ep, &message, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE));
            POST(fi_senddata(from->ep, out[0], 40, NULL, 79, from->peer, &out[0]));
            POST(fi_inject(from->ep, out[0], 40, from->peer));
            POST(fi_injectdata(from->ep, out[0], 40, 80, from->peer));
            POST(fi_tsend(from->ep, out[0], 40, NULL, from->peer, 9, &out[0]));
            POST(fi_tsendv(from->ep, outs, NULL, 3, from->peer, 9, &out[0]));
            POST(fi_tsendmsg(from->ep, &tagged, FI_INJECT));
            POST(fi_tsendmsg(from->ep, &tagged, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE));
            POST(fi_tsenddata(from->ep, out[0], 40, NULL, 79, from->peer, 9, &out[0]));
            POST(fi_tinject(from->ep, out[0], 40, from->peer, 9));
            POST(fi_tinjectdata(from->ep, out[0], 40, 80, from->peer, 9));
        }
        static const uint64_t datas[] = {0, 0, 0, 77, 79, 0, 80, 0, 0, 0, 78, 79, 0, 80};
        static const size_t longs[] = {40, 47, 47, 47, 40, 40, 40, 40, 47, 47, 47, 40, 40, 40};
        for (int i = 0; to && i < 14; i++) {
            memset(in, 0, sizeof(in));
            message = (struct fi_msg){.msg_iov = ins, .iov_count = 3, .addr = FI_ADDR_UNSPEC, .context = &in[0]};
            tagged = (struct fi_msg_tagged){.msg_iov = ins, .iov_count = 3, .addr = FI_ADDR_UNSPEC, .context = &in[0], .tag = 1, .ignore = 8};
            if (i < 7 && i % 2)
                POST(fi_recvv(to->ep, ins, NULL, 3, FI_ADDR_UNSPEC, &in[0]));
            else if (i < 7)
                POST(fi_recvmsg(to->ep, &message, 0));
            else if (i % 2)
                POST(fi_trecvv(to->ep, ins, NULL, 3, FI_ADDR_UNSPEC, 9, 0, &in[0]));
            else
                POST(fi_trecvmsg(to->ep, &tagged, FI_COMPLETION));
            struct fi_cq_tagged_entry entry = next(to->rx, NULL);
            IS(entry.len, longs[i]);
            IS(entry.data, datas[i]);
            IS(entry.flags, FI_RECV | (i < 7 ? FI_MSG : FI_TAGGED) | (datas[i] ? FI_REMOTE_CQ_DATA : 0));
            IS(in[0][0], 'a' + turn);
            IS(in[0][3], 0);
            IS(in[1][36], 'a' + turn);
            IS(in[2][3], longs[i] == 47 ? 'a' + turn : 0);
            IS(in[2][4], 0);
        }
        if (from)
            for (int i = 0; i < 10; i++)
                HOLDS(next(from->tx, NULL).op_context == &out[0]);
        meet();
        if (from)
            HOLDS(is_empty(from->tx));
    }
    /* What cannot be. */
    struct iovec many[9] = {{0}};
    static char big[1000];
    IS(fi_sendv(here->ep, many, NULL, 9, here->peer, NULL), -FI_EINVAL);
    IS(fi_send(here->ep, NULL, 8, NULL, here->peer, NULL), -FI_EINVAL);
    IS(fi_send(here->ep, big, 8, NULL, 99999, NULL), -FI_EINVAL);
    IS(fi_inject(here->ep, big, sizeof(big), here->peer), -FI_EINVAL);
    HOLDS(fi_send(here->ep, big, (size_t) 1 << 33, NULL, here->peer, NULL) < 0);
}

/* Matching: the order of messages, tags that are ignored in part, sources that are named. */
static void matching(void)
{
    enum { N = 300 };
    static int in[N];
    struct end *to = receiver(0), *from = sender(0);
    if (from)
        for (int i = 0; i < N; i++)
            POST(fi_tinject(from->ep, &i, sizeof(i), from->peer, 0xAB00 + i % 3));
    if (to) {
        /* In the order of each tag. */
        for (int tag = 2; tag >= 0; tag--)
            for (int i = tag; i < N - 30; i += 3) {
                POST(fi_trecv(to->ep, &in[i], sizeof(int), NULL, i & 1 ? to->peer : FI_ADDR_UNSPEC, 0xAB00 + tag, 0, &in[i]));
                struct fi_cq_tagged_entry entry = next(to->rx, NULL);
                HOLDS(entry.op_context == &in[i] && in[i] == i && entry.tag == 0xAB00u + tag);
            }
        for (int i = N - 30; i < N; i++) {
            POST(fi_trecv(to->ep, &in[i], sizeof(int), NULL, FI_ADDR_UNSPEC, 0xAB00 | (i & 1 ? 0xFF : 0), 0xFF, &in[i]));
            HOLDS(next(to->rx, NULL).op_context == &in[i] && in[i] == i);
        }
    }
    meet();
    /* The oldest receive that fits. */
    if (to) {
        POST(fi_trecv(to->ep, &in[0], sizeof(int), NULL, FI_ADDR_UNSPEC, 7, 0, &in[0]));
        POST(fi_trecv(to->ep, &in[1], sizeof(int), NULL, FI_ADDR_UNSPEC, 0, ~0ull, &in[1]));
        POST(fi_trecv(to->ep, &in[2], sizeof(int), NULL, to->peer, 7, 0, &in[2]));
        POST(fi_recv(to->ep, &in[3], sizeof(int), NULL, FI_ADDR_UNSPEC, &in[3]));
    }
    meet();
    if (from) {
        int tags[] = {8, 7, 7};
        for (int i = 0; i < 3; i++)
            POST(fi_tinject(from->ep, &tags[i], sizeof(int), from->peer, tags[i]));
        POST(fi_inject(from->ep, &tags[0], sizeof(int), from->peer));
    }
    if (to) {
        HOLDS(next(to->rx, NULL).op_context == &in[1] && in[1] == 8);
        HOLDS(next(to->rx, NULL).op_context == &in[0] && in[0] == 7);
        HOLDS(next(to->rx, NULL).op_context == &in[2]);
        HOLDS(next(to->rx, NULL).op_context == &in[3]);
    }
    meet();
}

/* Messages that are longer than their room, on all ways. */
static void truncation(void)
{
    for (int turn = 0; turn < 8; turn++) {
        size_t length = turn & 2 ? 100000 : 100, room = turn & 4 ? 0 : 60;
        struct end *to = receiver(turn), *from = sender(turn);
        unsigned char *out = some(length, turn), in[80] = {0};
        if (to && turn & 4)
            POST(fi_trecv(to->ep, in, room, NULL, FI_ADDR_UNSPEC, 5, 0, in));
        meet();
        if (from)
            POST(fi_tsend(from->ep, out, length, NULL, from->peer, 5, out));
        if (to) {
            if (!(turn & 4))
                POST(fi_trecv(to->ep, in, room, NULL, FI_ADDR_UNSPEC, 5, 0, in));
            struct fi_cq_err_entry failed = next_error(to->rx);
            IS(failed.err, FI_ETRUNC);
            IS(failed.olen, length - room);
            IS(failed.len, room);
            IS(failed.tag, 5);
            HOLDS(failed.op_context == in && same(in, room, turn) && in[room] == 0);
            IS(fi_cntr_readerr(to->received), is_self ? turn + 1 : turn / 2 + 1);
        }
        if (from)
            HOLDS(next(from->tx, NULL).op_context == out);
        meet();
        free(out);
    }
}

/* What is taken back, looked at, set aside and thrown away. */
static void peeks(void)
{
    struct end *to = receiver(0), *from = sender(0);
    unsigned char in[3000], *out[4];
    struct iovec piece = {in, sizeof(in)};
    struct fi_context context[4];
    struct fi_msg_tagged none = {.addr = FI_ADDR_UNSPEC, .tag = 3, .context = &context[0]};
    struct fi_msg_tagged with = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 3, .context = &context[0]};
    if (to) {
        POST(fi_trecv(to->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 3, 0, &context[1]));
        IS(fi_cancel(&to->ep->fid, &context[2]), -FI_ENOENT);
        IS(fi_cancel(&to->ep->fid, &context[1]), 0);
        struct fi_cq_err_entry failed = next_error(to->rx);
        HOLDS(failed.err == FI_ECANCELED && failed.op_context == &context[1]);
        IS(fi_cancel(&to->ep->fid, &context[1]), -FI_ENOENT);
        POST(fi_trecvmsg(to->ep, &none, FI_PEEK | FI_COMPLETION));
        failed = next_error(to->rx);
        HOLDS(failed.err == FI_ENOMSG && failed.op_context == &context[0]);
        IS(fi_trecvmsg(to->ep, &with, FI_CLAIM), -FI_EINVAL);
    }
    meet();
    for (int i = 0; i < 4; i++)
        out[i] = some(9000, i);
    if (from) {
        POST(fi_tsend(from->ep, out[0], 700, NULL, from->peer, 3, &out[0]));
        POST(fi_tsend(from->ep, out[1], 9000, NULL, from->peer, 3, &out[1]));
        POST(fi_tsend(from->ep, out[2], 2000, NULL, from->peer, 3, &out[2]));
        POST(fi_tsend(from->ep, out[3], 9000, NULL, from->peer, 4, &out[3]));
    }
    if (to) {
        struct fi_cq_tagged_entry entry = {0};
        for (;;) {
            POST(fi_trecvmsg(to->ep, &none, FI_PEEK | FI_COMPLETION));
            ssize_t read;
            while ((read = fi_cq_read(to->rx, &entry, 1)) == -FI_EAGAIN)
                ;
            if (read == 1)
                break;
            struct fi_cq_err_entry failed = {0};
            fi_cq_readerr(to->rx, &failed, 0);
            IS(failed.err, FI_ENOMSG);
        }
        IS(entry.len, 700);
        IS(entry.tag, 3);
        /* Aside: others do not find it. */
        POST(fi_trecvmsg(to->ep, &none, FI_PEEK | FI_CLAIM));
        IS(next(to->rx, NULL).len, 700);
        none.context = with.context = &context[2];
        for (;;) {
            POST(fi_trecvmsg(to->ep, &none, FI_PEEK));
            ssize_t read;
            while ((read = fi_cq_read(to->rx, &entry, 1)) == -FI_EAGAIN)
                ;
            if (read == 1)
                break;
            struct fi_cq_err_entry failed = {0};
            fi_cq_readerr(to->rx, &failed, 0);
        }
        IS(entry.len, 9000);
        POST(fi_trecvmsg(to->ep, &none, FI_PEEK | FI_CLAIM));
        IS(next(to->rx, NULL).len, 9000);
        POST(fi_trecv(to->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 3, 0, &context[3]));
        entry = next(to->rx, NULL);
        HOLDS(entry.op_context == &context[3] && entry.len == 2000 && same(in, 2000, 2));
        POST(fi_trecvmsg(to->ep, &with, FI_CLAIM | FI_DISCARD));
        entry = next(to->rx, NULL);
        HOLDS(entry.op_context == &context[2]);
        with.context = &context[0];
        POST(fi_trecvmsg(to->ep, &with, FI_CLAIM));
        entry = next(to->rx, NULL);
        HOLDS(entry.op_context == &context[0] && entry.len == 700 && same(in, 700, 0));
        none.tag = 4;
        for (;;) {
            POST(fi_trecvmsg(to->ep, &none, FI_PEEK | FI_DISCARD));
            ssize_t read;
            while ((read = fi_cq_read(to->rx, &entry, 1)) == -FI_EAGAIN)
                ;
            if (read == 1)
                break;
            struct fi_cq_err_entry failed = {0};
            fi_cq_readerr(to->rx, &failed, 0);
        }
        IS(entry.len, 9000);
        POST(fi_trecvmsg(to->ep, &none, FI_PEEK));
        IS(next_error(to->rx).err, FI_ENOMSG);
    }
    if (from)
        for (int i = 0; i < 4; i++)
            next(from->tx, NULL);
    meet();
    for (int i = 0; i < 4; i++)
        free(out[i]);
}

/* Only what asks for it has an entry; and queues of all formats. */
static void selection(void)
{
    struct end *to = receiver(0), *from = sender(0);
    int in[3] = {0}, out = 5;
    struct iovec piece = {&out, sizeof(out)};
    struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .tag = 1, .context = &out};
    if (to) {
        struct iovec room = {&in[2], sizeof(int)};
        struct fi_msg_tagged with = {.msg_iov = &room, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 1, .context = &in[2]};
        POST(fi_trecv(to->ep, &in[0], sizeof(int), NULL, FI_ADDR_UNSPEC, 1, 0, &in[0]));
        POST(fi_trecv(to->ep, &in[1], sizeof(int), NULL, FI_ADDR_UNSPEC, 1, 0, &in[1]));
        POST(fi_trecvmsg(to->ep, &with, FI_COMPLETION));
    }
    meet();
    if (from) {
        message.addr = from->peer;
        POST(fi_tsend(from->ep, &out, sizeof(out), NULL, from->peer, 1, NULL));
        POST(fi_tsendmsg(from->ep, &message, 0));
        POST(fi_tsendmsg(from->ep, &message, FI_COMPLETION));
        HOLDS(next(from->tx, NULL).op_context == &out);
        HOLDS(is_empty(from->tx));
        IS(fi_cntr_wait(from->sent, 3, 5000), 0);
    }
    if (to) {
        HOLDS(next(to->rx, NULL).op_context == &in[2]);
        HOLDS(is_empty(to->rx) && in[0] == 5 && in[1] == 5);
        IS(fi_cntr_wait(to->received, 3, 5000), 0);
    }
    meet();
}

/* A buffer for as many messages as there is room for, which is free again with the last. Messages have their places in the
 * order in which they were sent (FI_ORDER_SAS); nothing promises that their entries come in any (comp_order), but for that
 * one which frees the buffer. */
static void multiples(void)
{
    enum { ROOM = 30000, LEAST = 2000, N = 40, ROOMS = 2 };
    static unsigned char room[ROOMS][ROOM];
    static const size_t longs[] = {1, 700, 0, 5000, 64};
    struct end *to = receiver(0), *from = sender(0);
    size_t least = LEAST;
    if (to) {
        IS(fi_setopt(&to->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
        struct iovec piece = {room[0], ROOM};
        struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = room[0]};
        struct fi_msg_tagged tagged = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
        IS(fi_trecvmsg(to->ep, &tagged, FI_MULTI_RECV), -FI_EBADFLAGS);
        POST(fi_recvmsg(to->ep, &message, FI_MULTI_RECV));
        /* One that is taken back. */
        piece.iov_base = message.context = room[1];
        POST(fi_recvmsg(to->ep, &message, FI_MULTI_RECV));
        IS(fi_cancel(&to->ep->fid, room[1]), 0);
        HOLDS(next_error(to->rx).err == FI_ECANCELED);
    }
    meet();
    unsigned char *out[N], *places[N];
    int in[ROOMS] = {0}, turn = 0;
    size_t used = 0;
    for (int i = 0; i < N; i++) {
        out[i] = some(longs[i % 5], i);
        if (ROOM - used < LEAST) {
            turn++;
            used = 0;
        }
        NEED(turn >= ROOMS);
        places[i] = room[turn] + used;
        used += longs[i % 5];
        in[turn]++;
    }
    if (from)
        for (int i = 0; i < N; i++)
            POST(fi_send(from->ep, out[i], longs[i % 5], NULL, from->peer, NULL));
    int is_last_full = ROOM - used < LEAST;
    for (int now = 0; to && now <= turn; now++) {
        unsigned char is_seen[N] = {0};
        int is_full = now < turn || is_last_full;
        for (int seen = 1; seen <= in[now]; seen++) {
            struct fi_cq_tagged_entry entry = next(to->rx, NULL);
            int i = 0;
            while (i < N && (is_seen[i] || entry.buf != places[i] || entry.len != longs[i % 5]))
                i++;
            HOLDS(entry.op_context == room[now] && i < N);
            if (i < N) {
                is_seen[i] = 1;
                HOLDS(same(places[i], entry.len, i));
            }
            IS((entry.flags & FI_MULTI_RECV) != 0, is_full && seen == in[now]);
        }
        if (now < turn) {
            struct iovec piece = {room[now + 1], ROOM};
            struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = room[now + 1]};
            /* Some wait for it already. */
            for (int i = 0; i < 300; i++)
                fi_cntr_read(to->received);
            POST(fi_recvmsg(to->ep, &message, FI_MULTI_RECV));
        }
    }
    if (to) {
        IS(turn, 1);
        HOLDS(is_empty(to->rx));
    }
    for (int i = 0; from && i < N; i++)
        next(from->tx, NULL);
    meet();
    for (int i = 0; i < N; i++)
        free(out[i]);
}

/* More than any ring holds, while nobody reads; and waits that sleep. */
static void floods(void)
{
    enum { N = 5000, LONG = 600 };
    struct end *to = receiver(0), *from = sender(0);
    static unsigned char out[LONG], in[LONG];
    uint64_t sent = 0;
    if (from)
        for (int i = 0; i < N; i++) {
            memset(out, i, LONG);
            ssize_t posted;
            while ((posted = fi_tsend(from->ep, out, LONG, NULL, from->peer, i, NULL)) == -FI_EAGAIN) {
                struct fi_cq_tagged_entry entries[64];
                ssize_t read = fi_cq_read(from->tx, entries, 64);
                sent += read > 0 ? (uint64_t) read : 0;
            }
            NEED(posted);
            /* What waits is read later: its memory must stay. */
            while (sent <= (uint64_t) i) {
                struct fi_cq_tagged_entry entries[64];
                ssize_t read = fi_cq_sread(from->tx, entries, 64, NULL, 1000);
                sent += read > 0 ? (uint64_t) read : 0;
            }
        }
    if (to)
        for (int i = 0; i < N; i++) {
            struct fi_cq_tagged_entry entry;
            ssize_t read;
            POST(fi_trecv(to->ep, in, LONG, NULL, FI_ADDR_UNSPEC, i, 0, &in));
            while ((read = fi_cq_sread(to->rx, &entry, 1, NULL, 1000)) == -FI_EAGAIN)
                ;
            NEED(read != 1);
            NEED(in[0] != (unsigned char) i || in[LONG - 1] != (unsigned char) i);
        }
    meet();
}

/* A peer that is killed: errors, and nothing hangs; others go on. */
static void death(void)
{
    static char out[200000], in[200000];
    POST(fi_tinject(here->ep, out, 8, here->peer, 1));
    POST(fi_trecv(here->ep, in, 8, NULL, here->peer, 1, 0, in));
    next(here->rx, NULL);
    if (is_child) {
        /* Told of, and never read. */
        POST(fi_tsend(here->ep, out, sizeof(out), NULL, here->peer, 77, NULL));
        meet();
        meet();
        raise(SIGKILL);
    }
    meet();
    /* Of whose end one has heard, nobody says that it sends nothing. */
    POST(fi_trecv(here->ep, in, 8, NULL, here->peer, 2, 0, &in[1]));
    meet();
    ssize_t posted = fi_tsend(here->ep, out, sizeof(out), NULL, here->peer, 3, &out[1]);
    int status;
    NEED(waitpid(child, &status, 0) != child);
    HOLDS(WIFSIGNALED(status));
    child = 0;
    struct fi_cq_err_entry failed = next_error(here->rx);
    HOLDS(failed.op_context == &in[1] && failed.err != 0);
    if (posted == 0) {
        failed = next_error(here->tx);
        HOLDS(failed.op_context == &out[1] && failed.err != 0);
    }
    /* What comes later fails, too. */
    POST(fi_trecv(here->ep, in, 8, NULL, here->peer, 4, 0, &in[3]));
    failed = next_error(here->rx);
    HOLDS(failed.op_context == &in[3] && failed.err != 0);
    posted = fi_tsend(here->ep, out, 8, NULL, here->peer, 3, &out[2]);
    if (posted == 0) {
        failed = next_error(here->tx);
        HOLDS(failed.op_context == &out[2]);
    }
    POST(fi_trecv(here->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 77, 0, &in[2]));
    HOLDS(is_empty(here->rx));
    IS(fi_cancel(&here->ep->fid, &in[2]), 0);
    IS(next_error(here->rx).err, FI_ECANCELED);
    close(wire[0]);
    wire[0] = -1;
}

/* What the first process keeps open: its end is that of whoever waits for it. */
static int life[2] = {-1, -1};

/* A peer that is killed, and leaves a child that has all its descriptors and goes on: the peer is gone nevertheless. */
static void heirs(void)
{
    static char out[8], in[8];
    pid_t heir = 0;
    POST(fi_tinject(here->ep, out, 8, here->peer, 1));
    POST(fi_trecv(here->ep, in, 8, NULL, here->peer, 1, 0, in));
    next(here->rx, NULL);
    meet();
    if (is_child) {
        NEED((heir = fork()) < 0);
        if (heir == 0) {
            close(life[1]);
            while (read(life[0], in, 1) > 0)
                ;
            _exit(0);
        }
        NEED(write(wire[0], &heir, sizeof(heir)) != sizeof(heir));
        meet();
        raise(SIGKILL);
    }
    close(life[0]);
    NEED(recv(wire[0], &heir, sizeof(heir), MSG_WAITALL) != sizeof(heir));
    POST(fi_trecv(here->ep, in, 8, NULL, here->peer, 2, 0, &in[1]));
    meet();
    int status;
    NEED(waitpid(child, &status, 0) != child);
    HOLDS(WIFSIGNALED(status));
    child = 0;
    HOLDS(next_error(here->rx).op_context == &in[1]);
    /* Nobody has its name any more. */
    if (fi_tsend(here->ep, out, 8, NULL, here->peer, 3, &out[2]) == 0)
        HOLDS(next_error(here->tx).op_context == &out[2]);
    IS(kill(heir, 0), 0);
    close(life[1]);
    close(wire[0]);
    wire[0] = -1;
}

/* The child goes on as another program until its input ends, which is now. */
static void let_go(void)
{
    IS(waitpid(child, NULL, WNOHANG), 0);
    close(life[1]);
    NEED(waitpid(child, NULL, 0) != child);
    child = 0;
    close(wire[0]);
    wire[0] = -1;
}

/* A peer that goes on as another program, under its number: it is gone, and nothing is read of what it has told of. */
static void successors(void)
{
    enum { LONG = 1 << 20 };
    static char out[LONG], in[LONG];
    POST(fi_tinject(here->ep, out, 8, here->peer, 1));
    POST(fi_trecv(here->ep, in, 8, NULL, here->peer, 1, 0, in));
    next(here->rx, NULL);
    meet();
    if (is_child) {
        POST(fi_tsend(here->ep, out, LONG, NULL, here->peer, 2, out));
        meet();
        NEED(dup2(life[0], 0) != 0);
        close(life[1]);
        execlp("cat", "cat", NULL);
        _exit(1);
    }
    close(life[0]);
    POST(fi_trecv(here->ep, in, 8, NULL, here->peer, 3, 0, &in[1]));
    meet();
    HOLDS(next_error(here->rx).op_context == &in[1]);
    POST(fi_trecv(here->ep, in, LONG, NULL, here->peer, 2, 0, &in[2]));
    HOLDS(next_error(here->rx).op_context == &in[2]);
    if (fi_tsend(here->ep, out, 8, NULL, here->peer, 4, &out[2]) == 0)
        HOLDS(next_error(here->tx).op_context == &out[2]);
    let_go();
}

/* A peer that has asked for a connection and goes on as another program before it is answered. */
static void hasty(void)
{
    static char out[8], in[8], late[8];
    char said = 'x';
    if (is_child) {
        POST(fi_tsend(here->ep, out, 8, NULL, here->peer, 1, out));
        NEED(dup2(life[0], 0) != 0);
        NEED(dup2(wire[0], 1) != 1);
        close(life[1]);
        execlp("cat", "cat", NULL);
        _exit(1);
    }
    close(life[0]);
    NEED(write(life[1], &said, 1) != 1);
    /* It is that program that says so. */
    NEED(read(wire[0], &said, 1) != 1);
    POST(fi_trecv(here->ep, in, 8, NULL, here->peer, 1, 0, in));
    IS(next_error(here->rx).err, FI_ECONNRESET);
    POST(fi_trecv(here->ep, late, 8, NULL, here->peer, 1, 0, late));
    HOLDS(next_error(here->rx).op_context == late);
    let_go();
}

/* What was sent reaches a peer that looks later, though the sender has closed everything. */
static void farewell(void)
{
    uint64_t word = 4711;
    POST(fi_tinject(here->ep, &word, 8, here->peer, 1));
    word = 0;
    POST(fi_trecv(here->ep, &word, 8, NULL, here->peer, 1, 0, &word));
    next(here->rx, NULL);
    meet();
    if (is_child) {
        uint64_t last = 815;
        POST(fi_tinject(here->ep, &last, 8, here->peer, 2));
        close_end(here);
        close_domain();
        exit(wrong != 0);
    }
    int status;
    NEED(waitpid(child, &status, 0) != child);
    IS(status, 0);
    child = 0;
    POST(fi_trecv(here->ep, &word, 8, NULL, FI_ADDR_UNSPEC, 2, 0, &word));
    next(here->rx, NULL);
    IS(word, 815);
    /* Nobody is there any more, as is seen sooner or later. */
    for (int is_gone = 0; !is_gone;) {
        struct fi_cq_tagged_entry entry;
        ssize_t read = -FI_EAGAIN;
        is_gone = fi_tsend(here->ep, &word, 8, NULL, here->peer, 3, &word) != 0;
        while (!is_gone && (read = fi_cq_read(here->tx, &entry, 1)) == -FI_EAGAIN)
            ;
        if (read == -FI_EAVAIL) {
            HOLDS(next_error(here->tx).op_context == &word);
            is_gone = 1;
        }
    }
    close(wire[0]);
    wire[0] = -1;
}

/* Who sleeps on a descriptor is woken by what comes. */
static void descriptors(void)
{
    enum { N = 50 };
    struct pollfd fd = {.events = POLLIN};
    struct fid *fids[] = {&here->rx->fid};
    NEED(fi_control(&here->rx->fid, FI_GETWAIT, &fd.fd));
    for (uint64_t i = 0; i < N; i++) {
        uint64_t in = 0;
        struct fi_cq_tagged_entry entry;
        POST(fi_trecv(here->ep, &in, 8, NULL, FI_ADDR_UNSPEC, i, 0, &in));
        if (is_child)
            POST(fi_tinject(here->ep, &i, 8, here->peer, i));
        while (fi_cq_read(here->rx, &entry, 1) != 1)
            if (fi_trywait(fabric, fids, 1) == 0)
                NEED(poll(&fd, 1, 20000) != 1);
        IS(in, i);
        if (!is_child)
            POST(fi_tinject(here->ep, &i, 8, here->peer, i));
    }
}

struct talk {
    int number;
    unsigned long bad;
};

static void *talk(void *argument)
{
    struct talk *talk = argument;
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t out = i << 8 | talk->number, in = 0;
        struct fi_cq_tagged_entry entry;
        while (fi_tinject(here->ep, &out, 8, here->peer, talk->number) == -FI_EAGAIN)
            stir();
        while (fi_trecv(here->ep, &in, 8, NULL, FI_ADDR_UNSPEC, talk->number, 0, &in) == -FI_EAGAIN)
            stir();
        /* Whoever reads an entry reads it for all: each waits for its own word. */
        while (__atomic_load_n(&in, __ATOMIC_ACQUIRE) == 0 && i + (uint64_t) talk->number > 0)
            fi_cq_read(here->rx, &entry, 1);
        talk->bad += in != out;
    }
    return NULL;
}

/* Several threads at one endpoint (FI_THREAD_SAFE). */
static void threads(void)
{
    enum { N = 4 };
    pthread_t each[N];
    struct talk talks[N];
    IS(info->domain_attr->threading, FI_THREAD_SAFE);
    for (int i = 0; i < N; i++) {
        talks[i] = (struct talk){.number = i + 1};
        NEED(pthread_create(&each[i], NULL, talk, &talks[i]));
    }
    for (int i = 0; i < N; i++) {
        NEED(pthread_join(each[i], NULL));
        IS(talks[i].bad, 0);
    }
    while (!is_empty(here->rx))
        ;
    meet();
}

int main(int argc, char **argv)
{
    static const struct one_case all[] = {
        {"lengths", lengths_both_ways}, {"calls", calls}, {"matching", matching}, {"truncation", truncation},
        {"peeks", peeks}, {"selection", selection}, {"multiples", multiples}, {"floods", floods}, {"death", death},
        {"heirs", heirs}, {"successors", successors}, {"hasty", hasty}, {"farewell", farewell}, {"threads", threads}, {"descriptors", descriptors},
    };
    if (argc < 2)
        return 2;
    setbuf(stdout, NULL);
    if (strcmp(argv[1], "selection") == 0)
        selective = FI_SELECTIVE_COMPLETION;
    if (strcmp(argv[1], "descriptors") == 0)
        wait_obj = FI_WAIT_FD;
    if (strcmp(argv[1], "heirs") == 0 || strcmp(argv[1], "successors") == 0 || strcmp(argv[1], "hasty") == 0)
        NEED(pipe(life));
    is_auto = argc > 3 && strcmp(argv[3], "auto") == 0;
    begin(argc > 2 ? argv[2] : NULL);
    RUN(all, argv[1]);
    return end();
}
