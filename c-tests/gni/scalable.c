/* Scalable endpoints of the provider gni: their objects, and what moves through their contexts, between two endpoints in a
 * process or in two.
 *
 *     scalable NAME apart|together [table]
 */

#include <pthread.h>

#include <rdma/fi_trigger.h>

#include "pair.h"

enum { CONTEXTS = 3, BITS = 2, WHOLE_CONTEXTS = 64 };

/* A scalable endpoint with all that belongs to it, and whom it talks to. */
struct side {
    struct fid_ep *sep, *tx[CONTEXTS], *rx[CONTEXTS];
    struct fid_cq *tx_cq[CONTEXTS], *rx_cq[CONTEXTS];
    struct fid_cntr *sent[CONTEXTS], *written[CONTEXTS], *received[CONTEXTS], *remote[CONTEXTS];
    struct fid_av *av;
    fi_addr_t peer;
};

static struct side sides[2];
static struct side *const mine = &sides[0];
static enum fi_av_type av_type = FI_AV_MAP;
static const char *service;

static struct fi_info *scalable_info(size_t contexts)
{
    struct fi_info *of = fi_dupinfo(info);
    of->ep_attr->tx_ctx_cnt = of->ep_attr->rx_ctx_cnt = contexts;
    return of;
}

static struct fid_ep *a_sep(size_t contexts)
{
    struct fi_info *of = scalable_info(contexts);
    struct fid_ep *sep = NULL;
    NEED(fi_scalable_ep(domain, of, &sep, NULL));
    fi_freeinfo(of);
    return sep;
}

static struct fid_av *an_av_with(int bits)
{
    struct fi_av_attr attr = {.type = av_type, .rx_ctx_bits = bits};
    struct fid_av *av = NULL;
    NEED(fi_av_open(domain, &attr, &av, NULL));
    return av;
}

static void open_tx(struct side *side, int i)
{
    NEED(fi_tx_context(side->sep, i, NULL, &side->tx[i], NULL));
    NEED(fi_ep_bind(side->tx[i], &side->tx_cq[i]->fid, FI_TRANSMIT));
    NEED(fi_ep_bind(side->tx[i], &side->sent[i]->fid, FI_SEND));
    NEED(fi_ep_bind(side->tx[i], &side->written[i]->fid, FI_WRITE | FI_READ));
}

static void open_rx(struct side *side, int i)
{
    NEED(fi_rx_context(side->sep, i, NULL, &side->rx[i], NULL));
    NEED(fi_ep_bind(side->rx[i], &side->rx_cq[i]->fid, FI_RECV));
    NEED(fi_ep_bind(side->rx[i], &side->received[i]->fid, FI_RECV));
    NEED(fi_ep_bind(side->rx[i], &side->remote[i]->fid, FI_REMOTE_READ | FI_REMOTE_WRITE));
}

static struct fid_cntr *some_counter(void)
{
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *counter = NULL;
    NEED(fi_cntr_open(domain, &attr, &counter, NULL));
    return counter;
}

static void open_side(struct side *side, int enables)
{
    side->sep = a_sep(CONTEXTS);
    side->av = an_av_with(BITS);
    NEED(fi_scalable_ep_bind(side->sep, &side->av->fid, 0));
    for (int i = 0; i < CONTEXTS; i++) {
        side->tx_cq[i] = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
        side->rx_cq[i] = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
        side->sent[i] = some_counter(), side->written[i] = some_counter();
        side->received[i] = some_counter(), side->remote[i] = some_counter();
        open_tx(side, i);
        open_rx(side, i);
        /* Each alone, or all with their endpoint. */
        if (enables && i == 0) {
            NEED(fi_enable(side->tx[i]));
            NEED(fi_enable(side->rx[i]));
        }
    }
    if (enables)
        NEED(fi_enable(side->sep));
}

static void close_side(struct side *side)
{
    for (int i = 0; i < CONTEXTS; i++) {
        IS(fi_close(&side->sep->fid), -FI_EBUSY);
        if (side->rx[i])
            IS(fi_close(&side->rx[i]->fid), 0);
        IS(fi_close(&side->tx[i]->fid), 0);
    }
    IS(fi_close(&side->av->fid), -FI_EBUSY);
    IS(fi_close(&side->sep->fid), 0);
    IS(fi_close(&side->av->fid), 0);
    for (int i = 0; i < CONTEXTS; i++) {
        struct fid *rest[] = {&side->tx_cq[i]->fid, &side->rx_cq[i]->fid,   &side->sent[i]->fid,
                              &side->written[i]->fid, &side->received[i]->fid, &side->remote[i]->fid};
        for (size_t k = 0; k < sizeof(rest) / sizeof(*rest); k++)
            IS(fi_close(rest[k]), 0);
    }
}

static void open_scalable_domain(void)
{
    struct fi_info *hints = wish();
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_NAMED_RX_CTX | FI_TRIGGER;
    hints->domain_attr->av_type = av_type;
    hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = CONTEXTS;
    NEED(fi_getinfo(API, NULL, service, service ? FI_SOURCE : 0, hints, &info));
    HOLDS(info->caps & FI_NAMED_RX_CTX);
    IS(info->ep_attr->tx_ctx_cnt, CONTEXTS);
    IS(info->domain_attr->max_ep_rx_ctx, WHOLE_CONTEXTS);
    NEED(fi_fabric(info->fabric_attr, &fabric, NULL));
    NEED(fi_domain(fabric, info, &domain, NULL));
    fi_freeinfo(hints);
}

static void know(struct side *side, const char *name)
{
    IS(fi_av_insert(side->av, name, 1, &side->peer, 0, NULL), 1);
}

static void name_side(struct side *side, char *name)
{
    size_t length = 48;
    NEED(fi_getname(&side->sep->fid, name, &length));
    IS(length, 48);
}

static void start(const char *how, int enables)
{
    char name[48], other[48];
    is_together = strcmp(how, "together") == 0;
    if (!is_together) {
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
    open_scalable_domain();
    open_side(mine, enables);
    here->tx = mine->tx_cq[0], here->rx = mine->rx_cq[0];
    name_side(mine, name);
    if (is_together) {
        open_side(&sides[1], enables);
        name_side(&sides[1], other);
        know(mine, other);
        know(&sides[1], name);
    } else {
        NEED(write(wire[0], name, 48) != 48);
        NEED(recv(wire[0], other, 48, MSG_WAITALL) != 48);
        know(mine, other);
    }
}

static int finish(void)
{
    meet();
    close_side(mine);
    if (is_together)
        close_side(&sides[1]);
    close_domain();
    if (child > 0) {
        int status;
        NEED(waitpid(child, &status, 0) != child);
        IS(status, 0);
    }
    return is_child ? wrong != 0 : verdict();
}

/* Who sends, and who receives, of this process; the parent sends first. */
static struct side *from(int turn)
{
    return is_together ? &sides[turn & 1] : (turn & 1) == is_child ? mine : NULL;
}

static struct side *to(int turn)
{
    return from(turn + 1);
}

static void idle(void)
{
    for (int i = 0; i < CONTEXTS; i++)
        for (int k = 0; k < 1 + is_together; k++)
            HOLDS(is_empty(sides[k].tx_cq[i]) && is_empty(sides[k].rx_cq[i]));
}

/* From every transmit context to every receive context. */
static int messages(void)
{
    static const size_t lengths[] = {0, 8, 4096, 5000, 300000};
    static unsigned char room[300000];
    unsigned seed = 0;
    for (int turn = 0; turn < 2; turn++) {
        struct side *out = from(turn), *in = to(turn);
        uint64_t number = 0;
        for (int i = 0; i < CONTEXTS; i++)
            for (int j = 0; j < CONTEXTS; j++)
                for (size_t k = 0; k < sizeof(lengths) / sizeof(*lengths); k++, number++) {
                    int is_tagged = k & 1;
                    unsigned char *bytes = some(lengths[k], ++seed);
                    if (in) {
                        /* Whom a receive names is the endpoint, whichever of its contexts. */
                        fi_addr_t source = number % 3 == 0 ? FI_ADDR_UNSPEC : fi_rx_addr(in->peer, (int) (number % CONTEXTS), BITS);
                        if (is_tagged)
                            POST(fi_trecv(in->rx[j], room, sizeof(room), NULL, source, number, 0, room));
                        else
                            POST(fi_recv(in->rx[j], room, sizeof(room), NULL, source, room));
                    }
                    if (out && is_tagged)
                        POST(fi_tsenddata(out->tx[i], bytes, lengths[k], NULL, number + 7, fi_rx_addr(out->peer, j, BITS), number, bytes));
                    else if (out)
                        POST(fi_send(out->tx[i], bytes, lengths[k], NULL, fi_rx_addr(out->peer, j, BITS), bytes));
                    if (in) {
                        fi_addr_t source;
                        struct fi_cq_tagged_entry entry = next(in->rx_cq[j], &source);
                        HOLDS(entry.op_context == room && entry.len == lengths[k] && same(room, lengths[k], seed));
                        HOLDS(source == in->peer);
                        HOLDS(!is_tagged || (entry.tag == number && entry.data == number + 7));
                    }
                    if (out)
                        HOLDS(next(out->tx_cq[i], NULL).op_context == bytes);
                    free(bytes);
                }
        for (int i = 0; i < CONTEXTS; i++) {
            uint64_t each = number / CONTEXTS;
            if (in)
                IS(fi_cntr_read(in->received[i]), each);
            if (out)
                IS(fi_cntr_read(out->sent[i]), each);
        }
    }
    meet();
    idle();
    return finish();
}

/* A receive of one endpoint takes nothing of another, and nothing of an ordinary one. */
static int sources(void)
{
    char name[48], room[8];
    for (int k = 0; k < 2; k++) {
        /* That of an ordinary endpoint, as that of a scalable one, is a peer like any other. */
        size_t length = 48;
        struct fid_ep *ep;
        fi_addr_t own, peer;
        NEED(fi_endpoint(domain, info, &ep, NULL));
        NEED(fi_ep_bind(ep, &sides[1].av->fid, 0));
        struct fid_cq *cq = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE);
        NEED(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
        NEED(fi_enable(ep));
        NEED(fi_getname(&ep->fid, name, &length));
        IS(fi_av_insert(mine->av, name, 1, &own, 0, NULL), 1);
        name_side(mine, name);
        IS(fi_av_insert(sides[1].av, name, 1, &peer, 0, NULL), 1);
        POST(fi_trecv(mine->rx[1], room, 1, NULL, own, 5, 0, room));
        POST(fi_trecv(mine->rx[1], room + 1, 1, NULL, mine->peer, 5, 0, room + 1));
        POST(fi_tsend(sides[1].tx[2], "s", 1, NULL, fi_rx_addr(sides[1].peer, 1, BITS), 5, NULL));
        fi_addr_t source;
        IS(next(mine->rx_cq[1], &source).op_context == room + 1, 1);
        IS(source, mine->peer);
        POST(fi_tsend(ep, "o", 1, NULL, fi_rx_addr(peer, 1, BITS), 5, NULL));
        IS(next(mine->rx_cq[1], &source).op_context == room, 1);
        IS(source, own);
        HOLDS(room[0] == 'o' && room[1] == 's');
        /* From a context to the ordinary one, which knows it by its endpoint's name. */
        POST(fi_trecv(ep, room, 1, NULL, peer, 6, 0, room));
        POST(fi_tsend(mine->tx[2], "b", 1, NULL, own, 6, NULL));
        next(cq, &source);
        next(cq, &source);
        HOLDS(room[0] == 'b');
        next(mine->tx_cq[2], NULL);
        next(sides[1].tx_cq[2], NULL);
        /* It has no contexts. */
        IS(fi_tsend(mine->tx[2], "b", 1, NULL, fi_rx_addr(own, 1, BITS), 6, NULL), -FI_EINVAL);
        IS(fi_av_remove(mine->av, &own, 1, 0), 0);
        IS(fi_av_remove(sides[1].av, &peer, 1, 0), 0);
        IS(fi_close(&ep->fid), 0);
        IS(fi_close(&cq->fid), 0);
    }
    return finish();
}

static int memory(void)
{
    static unsigned char bytes[65536];
    static uint64_t value[1];
    struct region region = offer(bytes, sizeof(bytes), ANY_ACCESS, 7);
    struct region values = offer(value, sizeof(value), ANY_ACCESS, 8);
    struct far far = exchange(&region), there = exchange(&values);
    for (int turn = 0; turn < 2; turn++) {
        struct side *out = from(turn), *in = to(turn);
        uint64_t done[CONTEXTS] = {0}, sum = 0, one = 1, before = 0;
        for (int i = 0; i < CONTEXTS; i++)
            for (int j = 0; j < CONTEXTS; j++)
                for (int k = 0; k < 2; k++, sum++) {
                    size_t length = k ? sizeof(bytes) : 100;
                    done[j] += 3;
                    if (out) {
                        fi_addr_t at = fi_rx_addr(out->peer, j, BITS);
                        unsigned char *data = some(length, (unsigned) sum), *back = calloc(1, length);
                        POST(fi_write(out->tx[i], data, length, NULL, at, far.base, far.key, data));
                        HOLDS(next(out->tx_cq[i], NULL).op_context == data);
                        POST(fi_read(out->tx[i], back, length, NULL, at, far.base, far.key, back));
                        HOLDS(next(out->tx_cq[i], NULL).op_context == back);
                        HOLDS(same(back, length, (unsigned) sum));
                        POST(fi_fetch_atomic(out->tx[i], &one, 1, NULL, &before, NULL, at, there.base, there.key, FI_UINT64, FI_SUM, NULL));
                        next(out->tx_cq[i], NULL);
                        IS(before, sum + (is_together ? turn * 2 * CONTEXTS * CONTEXTS : 0));
                        free(data);
                        free(back);
                    }
                    while (in && !is_together && fi_cntr_read(in->remote[j]) < done[j])
                        stir();
                }
        for (int i = 0; i < CONTEXTS; i++) {
            if (in)
                IS(fi_cntr_read(in->remote[i]), done[i]);
            if (out)
                IS(fi_cntr_read(out->written[i]), 6 * CONTEXTS);
        }
        meet();
    }
    idle();
    NEED(fi_close(&region.mr->fid));
    NEED(fi_close(&values.mr->fid));
    return finish();
}

/* What the contexts of a side do not do, and that they do nothing before they are enabled. */
static int refusals(void)
{
    char room[8] = {0};
    struct fid_ep *tx = mine->tx[1], *rx = mine->rx[1], *sep = mine->sep;
    fi_addr_t at = fi_rx_addr(mine->peer, 1, BITS);
    IS(fi_send(tx, room, 1, NULL, at, NULL), -FI_EOPBADSTATE);
    IS(fi_recv(rx, room, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPBADSTATE);
    IS(fi_ep_bind(tx, &mine->av->fid, 0), -FI_EINVAL);
    IS(fi_ep_bind(rx, &mine->tx_cq[1]->fid, FI_TRANSMIT), -FI_EBADFLAGS);
    IS(fi_ep_bind(tx, &mine->tx_cq[1]->fid, FI_RECV), -FI_EBADFLAGS);
    IS(fi_ep_bind(tx, &mine->tx_cq[1]->fid, FI_TRANSMIT), -FI_EINVAL);
    IS(fi_ep_bind(tx, &mine->sent[1]->fid, FI_RECV), -FI_EBADFLAGS);
    IS(fi_ep_bind(rx, &mine->sent[1]->fid, FI_REMOTE_WRITE | FI_WRITE), -FI_EBADFLAGS);
    IS(fi_ep_bind(sep, &mine->tx_cq[1]->fid, FI_TRANSMIT), -FI_EINVAL);
    IS(fi_ep_bind(sep, &mine->sent[1]->fid, FI_SEND), -FI_EINVAL);
    NEED(fi_enable(mine->sep));
    NEED(fi_enable(sides[1].sep));
    IS(fi_enable(mine->sep), -FI_EOPBADSTATE);
    IS(fi_enable(tx), -FI_EOPBADSTATE);
    IS(fi_enable(rx), -FI_EOPBADSTATE);
    IS(fi_ep_bind(tx, &mine->tx_cq[1]->fid, FI_TRANSMIT), -FI_EOPBADSTATE);
    IS(fi_recv(tx, room, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_ENOSYS);
    IS(fi_trecv(tx, room, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_ENOSYS);
    IS(fi_send(rx, room, 1, NULL, at, NULL), -FI_ENOSYS);
    IS(fi_tinject(rx, room, 1, at, 0), -FI_ENOSYS);
    IS(fi_write(rx, room, 1, NULL, at, 0, 0, NULL), -FI_ENOSYS);
    IS(fi_read(rx, room, 1, NULL, at, 0, 0, NULL), -FI_ENOSYS);
    IS(fi_atomic(rx, room, 1, NULL, at, 0, 0, FI_UINT8, FI_SUM, NULL), -FI_ENOSYS);
    IS(fi_send(sep, room, 1, NULL, at, NULL), -FI_ENOSYS);
    IS(fi_trecv(sep, room, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_ENOSYS);
    IS(fi_write(sep, room, 1, NULL, at, 0, 0, NULL), -FI_ENOSYS);
    IS(fi_cancel(&sep->fid, NULL), -FI_ENOSYS);
    IS(fi_control(&sep->fid, FI_GETWAIT, NULL), -FI_ENOSYS);
    size_t length = 48;
    char name[48];
    IS(fi_getname(&tx->fid, name, &length), -FI_ENOSYS);
    length = 3;
    IS(fi_getname(&sep->fid, name, &length), -FI_ETOOSMALL);
    IS(length, 48);
    /* Work that is queued goes by the same rule. */
    struct fi_op_msg op = {.ep = rx, .msg = {.addr = at}};
    struct fi_deferred_work work = {.triggering_cntr = mine->sent[1], .op_type = FI_OP_SEND, .op.msg = &op};
    IS(fi_control(&domain->fid, FI_QUEUE_WORK, &work), -FI_EINVAL);
    op.ep = tx, work.op_type = FI_OP_RECV;
    IS(fi_control(&domain->fid, FI_QUEUE_WORK, &work), -FI_EINVAL);
    /* Beyond those that the peer has; and nobody. */
    IS(fi_send(tx, room, 1, NULL, fi_rx_addr(mine->peer, CONTEXTS, BITS), NULL), -FI_EINVAL);
    IS(fi_send(tx, room, 1, NULL, mine->peer + 1, NULL), -FI_EINVAL);
    IS(fi_send(tx, room, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
    uint64_t flags = FI_RECV;
    IS(fi_control(&tx->fid, FI_GETOPSFLAG, &flags), -FI_EINVAL);
    flags = FI_SEND;
    IS(fi_control(&tx->fid, FI_GETOPSFLAG, &flags), 0);
    /* A receive that is taken back, and one for several messages. */
    static char many[64];
    size_t least = 16;
    NEED(fi_recv(rx, room, 1, NULL, mine->peer, room));
    IS(fi_cancel(&rx->fid, room), 0);
    struct fi_cq_err_entry failed = next_error(mine->rx_cq[1]);
    HOLDS(failed.err == FI_ECANCELED && failed.op_context == room);
    IS(fi_cancel(&tx->fid, room), -FI_ENOENT);
    NEED(fi_setopt(&rx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
    struct iovec piece = {many, sizeof(many)};
    struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = many};
    NEED(fi_recvmsg(rx, &message, FI_MULTI_RECV));
    for (int i = 0; i < 3; i++) {
        POST(fi_send(sides[1].tx[i], "0123456789abcdefghi", 19, NULL, fi_rx_addr(sides[1].peer, 1, BITS), NULL));
        struct fi_cq_tagged_entry entry = next(mine->rx_cq[1], NULL);
        HOLDS(entry.len == 19 && entry.buf == many + 19 * i && !(entry.flags & FI_MULTI_RECV) == (i < 2));
        next(sides[1].tx_cq[i], NULL);
    }
    /* Another view of a context is one of the same, and holds it. */
    struct fid_ep *alias = NULL;
    NEED(fi_ep_alias(tx, &alias, FI_TRANSMIT | FI_COMPLETION));
    IS(alias->fid.fclass, FI_CLASS_TX_CTX);
    IS(fi_recv(alias, room, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_ENOSYS);
    IS(fi_close(&tx->fid), -FI_EBUSY);
    IS(fi_close(&alias->fid), 0);
    return finish();
}

/* What a context leaves to the others when it is closed, and that a transmitting one can be opened again. */
static int closing(void)
{
    static unsigned char room[100000];
    unsigned char *long_one = some(sizeof(room), 1), *other = some(sizeof(room), 2);
    struct side *out = mine, *in = &sides[1];
    fi_addr_t at = fi_rx_addr(out->peer, 1, BITS);
    /* Long messages that nobody has asked for lie where they were sent from; with a context go its own. */
    POST(fi_tsend(out->tx[1], other, sizeof(room), NULL, at, 2, NULL));
    POST(fi_tsend(out->tx[2], long_one, sizeof(room), NULL, at, 1, NULL));
    POST(fi_trecv(in->rx[1], room, 1, NULL, in->peer, 3, 0, room));
    struct iovec piece = {NULL, 0};
    struct fi_msg_tagged message = {.msg_iov = &piece, .addr = in->peer, .tag = 1, .context = room};
    for (uint64_t tag = 1; tag <= 2; tag++) {
        ssize_t peeked = -FI_EAVAIL;
        struct fi_cq_tagged_entry entry;
        struct fi_cq_err_entry failed = {0};
        message.tag = tag;
        while (peeked == -FI_EAVAIL) {
            NEED(fi_trecvmsg(in->rx[1], &message, FI_PEEK));
            while ((peeked = fi_cq_read(in->rx_cq[1], &entry, 1)) == -FI_EAGAIN)
                ;
            if (peeked == -FI_EAVAIL)
                IS(fi_cq_readerr(in->rx_cq[1], &failed, 0), 1);
        }
        IS(entry.len, sizeof(room));
    }
    IS(fi_close(&out->tx[1]->fid), 0);
    /* Its own send may have ended before it did. */
    if (!is_empty(out->tx_cq[1]))
        IS(next_error(out->tx_cq[1]).op_context == NULL, 1);
    HOLDS(is_empty(out->tx_cq[1]));
    POST(fi_trecv(in->rx[1], room, sizeof(room), NULL, in->peer, 1, 0, long_one));
    IS(next(in->rx_cq[1], NULL).op_context == long_one, 1);
    HOLDS(same(room, sizeof(room), 1));
    next(out->tx_cq[2], NULL);
    /* The directed receive is there still. */
    POST(fi_tsend(out->tx[0], "x", 1, NULL, at, 3, NULL));
    IS(next(in->rx_cq[1], NULL).tag, 3);
    next(out->tx_cq[0], NULL);
    /* What the closed one had not delivered is gone. */
    message.tag = 2;
    NEED(fi_trecvmsg(in->rx[1], &message, FI_PEEK));
    IS(next_error(in->rx_cq[1]).err, FI_ENOMSG);
    for (int round = 0; round < 3; round++) {
        if (round != 0)
            IS(fi_close(&out->tx[1]->fid), 0);
        open_tx(out, 1);
        struct fid_ep *twice;
        IS(fi_tx_context(out->sep, 1, NULL, &twice, NULL), -FI_EBUSY);
        NEED(fi_enable(out->tx[1]));
        POST(fi_tsend(out->tx[1], long_one, 5000, NULL, at, 4, NULL));
        POST(fi_trecv(in->rx[1], room, sizeof(room), NULL, in->peer, 4, 0, room));
        IS(next(in->rx_cq[1], NULL).len, 5000);
        next(out->tx_cq[1], NULL);
    }
    /* A receiving one is closed once. Who calls it then hears that nobody is there; of the others, that they are. */
    struct fid_ep *again;
    IS(fi_close(&in->rx[1]->fid), 0);
    IS(fi_rx_context(in->sep, 1, NULL, &again, NULL), -FI_EBUSY);
    POST(fi_tsend(out->tx[0], "y", 1, NULL, at, 5, NULL));
    int err = next_error(out->tx_cq[0]).err;
    HOLDS(err == FI_ECONNREFUSED || err == FI_ECONNRESET);
    POST(fi_trecv(in->rx[2], room, 1, NULL, in->peer, 6, 0, room));
    POST(fi_tsend(out->tx[0], "z", 1, NULL, fi_rx_addr(out->peer, 2, BITS), 6, NULL));
    IS(next(in->rx_cq[2], NULL).tag, 6);
    next(out->tx_cq[0], NULL);
    in->rx[1] = NULL;
    free(long_one);
    free(other);
    return finish();
}

/* A context that is called while it is not enabled answers when it is. */
static int late(void)
{
    struct side *out = mine, *in = &sides[1];
    char room = 0;
    for (int i = 0; i < CONTEXTS; i++) {
        NEED(fi_enable(out->tx[i]));
        POST(fi_tsend(out->tx[i], &"abc"[i], 1, NULL, fi_rx_addr(out->peer, i, BITS), 1, NULL));
    }
    for (int i = 0; i < 1000; i++)
        HOLDS(is_empty(out->tx_cq[0]) && is_empty(in->rx_cq[0]));
    for (int i = 0; i < CONTEXTS; i++) {
        NEED(fi_enable(in->rx[i]));
        POST(fi_trecv(in->rx[i], &room, 1, NULL, in->peer, 1, 0, &room));
        next(in->rx_cq[i], NULL);
        HOLDS(room == "abc"[i]);
        next(out->tx_cq[i], NULL);
    }
    return finish();
}

/* Receives that name an endpoint whose process has ended end, and so do those that are posted later. */
static int death(void)
{
    char room[8], before;
    fi_addr_t at = fi_rx_addr(mine->peer, 1, BITS);
    if (is_child) {
        POST(fi_tsend(mine->tx[2], "x", 1, NULL, at, 1, NULL));
        next(mine->tx_cq[2], NULL);
        POST(fi_trecv(mine->rx[1], room, 1, NULL, mine->peer, 9, 0, NULL));
        meet();
        for (;;)
            pause();
    }
    POST(fi_trecv(mine->rx[1], &before, 1, NULL, fi_rx_addr(mine->peer, 2, BITS), 1, 0, NULL));
    next(mine->rx_cq[1], NULL);
    POST(fi_trecv(mine->rx[1], room, 1, NULL, mine->peer, 2, 0, room));
    meet();
    NEED(kill(child, SIGKILL));
    NEED(waitpid(child, NULL, 0) != child);
    struct fi_cq_err_entry failed = next_error(mine->rx_cq[1]);
    HOLDS(failed.op_context == room && failed.err == FI_ECONNRESET);
    POST(fi_trecv(mine->rx[1], room, 1, NULL, mine->peer, 3, 0, room + 1));
    failed = next_error(mine->rx_cq[1]);
    HOLDS(failed.op_context == room + 1 && failed.err == FI_ECONNRESET);
    POST(fi_send(mine->tx[0], room, 1, NULL, at, room));
    failed = next_error(mine->tx_cq[0]);
    HOLDS(failed.op_context == room && (failed.err == FI_ECONNRESET || failed.err == FI_ECONNREFUSED));
    child = 0;
    /* There is nobody to meet. */
    wire[0] = -1;
    return finish();
}

/* The next entry; whoever waits sleeps. */
static void *ended(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry = {0};
    IS(fi_cq_sread(cq, &entry, 1, NULL, -1), 1);
    return entry.op_context;
}

/* A context each, of as many threads. */
static void *converse(void *argument)
{
    int i = (int) (intptr_t) argument;
    for (int round = 0; round < 100; round++)
        for (int turn = 0; turn < 2; turn++) {
            struct side *out = from(turn), *in = to(turn);
            size_t length = round % 50 == 49 ? 70000 : 64;
            unsigned char *room = malloc(length), *bytes = some(length, (unsigned) round);
            ssize_t posted;
            if (in) {
                while ((posted = fi_trecv(in->rx[i], room, length, NULL, in->peer, 1, 0, room)) == -FI_EAGAIN)
                    fi_cq_read(in->rx_cq[i], NULL, 0);
                HOLDS(posted == 0);
            }
            if (out) {
                while ((posted = fi_tsend(out->tx[i], bytes, length, NULL, fi_rx_addr(out->peer, i, BITS), 1, bytes)) == -FI_EAGAIN)
                    fi_cq_read(out->tx_cq[i], NULL, 0);
                HOLDS(posted == 0);
            }
            if (in)
                HOLDS(ended(in->rx_cq[i]) == room && same(room, length, (unsigned) round));
            if (out)
                HOLDS(ended(out->tx_cq[i]) == bytes);
            free(room);
            free(bytes);
        }
    return NULL;
}

static int threads(void)
{
    pthread_t all[CONTEXTS];
    for (int i = 0; i < CONTEXTS; i++)
        NEED(pthread_create(&all[i], NULL, converse, (void *) (intptr_t) i));
    for (int i = 0; i < CONTEXTS; i++)
        NEED(pthread_join(all[i], NULL));
    return finish();
}

/* An endpoint that is bound to a service has its contexts there, for who knows no more. */
static int bound(void)
{
    char text[16], room[8];
    fi_addr_t at;
    /* Of this process alone. */
    snprintf(text, sizeof(text), "%d", 20000 + getpid() % 20000);
    service = text;
    open_scalable_domain();
    open_side(mine, 1);
    IS(fi_av_insertsvc(mine->av, "127.0.0.1", text, &at, 0, NULL), 1);
    for (int i = 0; i < CONTEXTS; i++) {
        fi_addr_t source;
        POST(fi_recv(mine->rx[i], room, 1, NULL, FI_ADDR_UNSPEC, room));
        POST(fi_send(mine->tx[i], &"abc"[i], 1, NULL, fi_rx_addr(at, i, BITS), NULL));
        next(mine->rx_cq[i], &source);
        HOLDS(room[0] == "abc"[i]);
        IS(source, at);
        next(mine->tx_cq[i], NULL);
    }
    /* The service has an owner. */
    struct fi_info *of = scalable_info(1);
    struct fid_ep *other;
    IS(fi_scalable_ep(domain, of, &other, NULL), -FI_EADDRINUSE);
    fi_freeinfo(of);
    child = 0;
    return finish();
}

static int objects(void)
{
    struct fid_ep *sep, *tx, *rx, *part;
    open_scalable_domain();
    struct fi_info *of = scalable_info(2);
    IS(domain->ops->scalable_ep(domain, NULL, &sep, NULL), -FI_EINVAL);
    IS(domain->ops->scalable_ep(domain, of, NULL, NULL), -FI_EINVAL);
    IS(domain->ops->scalable_ep(NULL, of, &sep, NULL), -FI_EINVAL);
    of->ep_attr->rx_ctx_cnt = WHOLE_CONTEXTS + 1;
    IS(fi_scalable_ep(domain, of, &sep, NULL), -FI_EINVAL);
    of->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    IS(fi_scalable_ep(domain, of, &sep, NULL), -FI_EINVAL);
    of->ep_attr->rx_ctx_cnt = 2, of->ep_attr->type = FI_EP_MSG;
    IS(fi_scalable_ep(domain, of, &sep, NULL), -FI_EINVAL);
    of->ep_attr->type = FI_EP_DGRAM;
    NEED(fi_scalable_ep(domain, of, &sep, NULL));
    IS(fi_close(&sep->fid), 0);
    /* None is one. */
    of->ep_attr->type = FI_EP_RDM, of->ep_attr->tx_ctx_cnt = of->ep_attr->rx_ctx_cnt = 0;
    NEED(fi_scalable_ep(domain, of, &sep, &wrong));
    HOLDS(sep->fid.context == &wrong);
    IS(sep->fid.fclass, FI_CLASS_SEP);
    IS(fi_tx_context(sep, 1, NULL, &tx, NULL), -FI_EINVAL);
    IS(fi_rx_context(sep, 1, NULL, &rx, NULL), -FI_EINVAL);
    IS(fi_enable(sep), -FI_ENOAV);
    IS(fi_close(&domain->fid), -FI_EBUSY);
    IS(fi_close(&sep->fid), 0);

    /* As many as there are, and their names are free again. */
    for (int i = 0; i < 2; i++) {
        sep = a_sep(WHOLE_CONTEXTS);
        NEED(fi_rx_context(sep, WHOLE_CONTEXTS - 1, NULL, &rx, NULL));
        NEED(fi_tx_context(sep, WHOLE_CONTEXTS - 1, NULL, &tx, NULL));
        IS(fi_tx_context(sep, WHOLE_CONTEXTS, NULL, &part, NULL), -FI_EINVAL);
        IS(fi_close(&rx->fid), 0);
        IS(fi_close(&tx->fid), 0);
        IS(fi_close(&sep->fid), 0);
    }

    sep = a_sep(2);
    static const int bad[] = {-1, 2, 256, 1 << 20, -256};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        IS(fi_tx_context(sep, bad[i], NULL, &tx, NULL), -FI_EINVAL);
        IS(fi_rx_context(sep, bad[i], NULL, &rx, NULL), -FI_EINVAL);
    }
    IS(fi_tx_context(sep, 0, NULL, NULL, NULL), -FI_EINVAL);
    IS(fi_rx_context(sep, 0, NULL, NULL, NULL), -FI_EINVAL);
    NEED(fi_tx_context(sep, 0, NULL, &tx, &tx));
    NEED(fi_rx_context(sep, 1, NULL, &rx, NULL));
    IS(fi_tx_context(sep, 0, NULL, &part, NULL), -FI_EBUSY);
    IS(fi_rx_context(sep, 1, NULL, &part, NULL), -FI_EBUSY);
    HOLDS(tx->fid.fclass == FI_CLASS_TX_CTX && rx->fid.fclass == FI_CLASS_RX_CTX && tx->fid.context == &tx);
    IS(fi_tx_context(tx, 0, NULL, &part, NULL), -FI_ENOSYS);

    /* In this order they are enabled, and in no other. */
    struct fid_av *av = an_av_with(1);
    struct fid_cq *cq = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE);
    IS(fi_enable(tx), -FI_ENOAV);
    IS(fi_scalable_ep_bind(sep, NULL, 0), -FI_EINVAL);
    IS(fi_scalable_ep_bind(sep, &av->fid, 1), -FI_EBADFLAGS);
    IS(fi_scalable_ep_bind(sep, &domain->fid, 0), -FI_ENOSYS);
    NEED(fi_scalable_ep_bind(sep, &av->fid, 0));
    IS(fi_scalable_ep_bind(sep, &av->fid, 0), -FI_EINVAL);
    struct fid_domain *other_domain;
    struct fid_av *other_av;
    struct fi_av_attr attr = {.type = av_type};
    NEED(fi_domain(fabric, info, &other_domain, NULL));
    NEED(fi_av_open(other_domain, &attr, &other_av, NULL));
    IS(fi_scalable_ep_bind(sep, &other_av->fid, 0), -FI_EDOMAIN);
    IS(fi_close(&other_av->fid), 0);
    IS(fi_close(&other_domain->fid), 0);
    IS(fi_enable(tx), -FI_ENOCQ);
    IS(fi_enable(rx), -FI_ENOCQ);
    NEED(fi_ep_bind(tx, &cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
    /* All, or none. */
    IS(fi_enable(sep), -FI_ENOCQ);
    IS(fi_send(tx, "", 0, NULL, 0, NULL), -FI_EOPBADSTATE);
    NEED(fi_ep_bind(rx, &cq->fid, FI_RECV));
    NEED(fi_enable(sep));
    IS(fi_scalable_ep_bind(sep, &av->fid, 0), -FI_EOPBADSTATE);
    IS(fi_enable(tx), -FI_EOPBADSTATE);
    /* One that comes later is enabled by itself. */
    NEED(fi_tx_context(sep, 1, NULL, &part, NULL));
    NEED(fi_ep_bind(part, &cq->fid, FI_TRANSMIT));
    IS(fi_send(part, "", 0, NULL, 0, NULL), -FI_EOPBADSTATE);
    NEED(fi_enable(part));
    IS(fi_send(part, "", 0, NULL, 0, NULL), -FI_EINVAL);
    struct fid *busy[] = {&sep->fid, &av->fid, &cq->fid, &domain->fid};
    for (size_t i = 0; i < sizeof(busy) / sizeof(*busy); i++)
        IS(fi_close(busy[i]), -FI_EBUSY);
    /* A function of another class. */
    IS(sep->fid.ops->close(&tx->fid), -FI_EINVAL);
    IS(tx->fid.ops->close(&sep->fid), -FI_EINVAL);
    IS(fi_close(&tx->fid), 0);
    IS(fi_close(&sep->fid), -FI_EBUSY);
    IS(fi_close(&part->fid), 0);
    IS(fi_close(&cq->fid), -FI_EBUSY);
    IS(fi_close(&rx->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_close(&sep->fid), 0);
    IS(fi_close(&av->fid), 0);

    /* Attributes of a context: within those of its endpoint, and what comes back is what it has. */
    sep = a_sep(2);
    struct fi_tx_attr tx_attr = {.caps = FI_TAGGED, .size = 5};
    NEED(fi_tx_context(sep, 0, &tx_attr, &tx, NULL));
    HOLDS(tx_attr.size == 5 && tx_attr.inject_size == info->tx_attr->inject_size && (tx_attr.caps & FI_TAGGED) && !(tx_attr.caps & FI_RMA));
    IS(fi_write(tx, "x", 1, NULL, 0, 0, 0, NULL), -FI_ENOSYS);
    IS(fi_close(&tx->fid), 0);
    tx_attr = (struct fi_tx_attr){.inject_size = 1 << 20};
    IS(fi_tx_context(sep, 0, &tx_attr, &tx, NULL), -FI_EINVAL);
    tx_attr = (struct fi_tx_attr){.caps = FI_MSG | FI_HMEM};
    IS(fi_tx_context(sep, 0, &tx_attr, &tx, NULL), -FI_EINVAL);
    struct fi_rx_attr rx_attr = {.size = 1 << 20};
    IS(fi_rx_context(sep, 0, &rx_attr, &rx, NULL), -FI_EINVAL);
    rx_attr = (struct fi_rx_attr){.op_flags = FI_MULTI_RECV};
    NEED(fi_rx_context(sep, 0, &rx_attr, &rx, NULL));
    uint64_t flags = FI_RECV;
    HOLDS(rx_attr.caps & FI_DIRECTED_RECV);
    IS(fi_control(&rx->fid, FI_GETOPSFLAG, &flags), 0);
    IS(flags, FI_MULTI_RECV);
    IS(fi_close(&rx->fid), 0);
    IS(fi_close(&sep->fid), 0);

    /* Bits of an address; who is asked for with them is the endpoint. */
    static const int bad_bits[] = {-1, 9, 64};
    for (size_t i = 0; i < sizeof(bad_bits) / sizeof(*bad_bits); i++) {
        attr.rx_ctx_bits = bad_bits[i];
        IS(fi_av_open(domain, &attr, &av, NULL), -FI_EINVAL);
    }
    for (int bits = 0; bits <= 8; bits++) {
        char name[48], found[48];
        size_t length = 48;
        fi_addr_t at;
        sep = a_sep(1);
        av = an_av_with(bits);
        NEED(fi_getname(&sep->fid, name, &length));
        IS(fi_av_insert(av, name, 1, &at, 0, NULL), 1);
        HOLDS(bits == 0 || at >> (64 - bits) == 0);
        IS(fi_av_lookup(av, bits ? fi_rx_addr(at, 1, bits) : at, found, &length), 0);
        HOLDS(memcmp(name, found, 48) == 0);
        if (bits)
            IS(fi_av_remove(av, &(fi_addr_t){fi_rx_addr(at, 1, bits)}, 1, 0), -FI_EINVAL);
        IS(fi_av_remove(av, &at, 1, 0), 0);
        IS(fi_close(&av->fid), 0);
        IS(fi_close(&sep->fid), 0);
    }
    fi_freeinfo(of);
    close_domain();
    return verdict();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
        /* With how much of it done. */
        enum { ALONE, OPENED, ENABLED } stage;
    } all[] = {{"objects", objects, ALONE},    {"bound", bound, ALONE},     {"refusals", refusals, OPENED}, {"messages", messages, ENABLED},
               {"sources", sources, ENABLED},  {"memory", memory, ENABLED}, {"closing", closing, ENABLED},  {"death", death, ENABLED},
               {"threads", threads, ENABLED},  {"late", late, OPENED}};
    if (argc < 3)
        return 2;
    if (argc > 3 && strcmp(argv[3], "table") == 0)
        av_type = FI_AV_TABLE;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (strcmp(argv[1], all[i].name) == 0) {
            if (all[i].stage != ALONE)
                start(argv[2], all[i].stage == ENABLED);
            return all[i].run();
        }
    return 2;
}
