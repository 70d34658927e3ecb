/* What moves through the contexts of scalable endpoints of the provider gni, between two in a process or in two.
 *
 *     scalable NAME apart|together [table]
 */

#include <pthread.h>

#include "scalable.h"

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

/* An ordinary endpoint that the first of the two has as a peer, and that has it. */
static struct fid_ep *an_ordinary_one(struct fid_cq *sent, struct fid_cq *come, fi_addr_t *own, fi_addr_t *of_first)
{
    struct fid_ep *ep;
    char name[48];
    size_t length = sizeof(name);
    NEED(fi_endpoint(domain, info, &ep, NULL));
    NEED(fi_ep_bind(ep, &sides[1].av->fid, 0));
    NEED(fi_ep_bind(ep, &sent->fid, FI_TRANSMIT));
    NEED(fi_ep_bind(ep, &come->fid, FI_RECV));
    NEED(fi_enable(ep));
    NEED(fi_getname(&ep->fid, name, &length));
    IS(fi_av_insert(mine->av, name, 1, own, 0, NULL), 1);
    name_side(mine, name);
    IS(fi_av_insert(sides[1].av, name, 1, of_first, 0, NULL), 1);
    return ep;
}

/* The end of a context is not that of its endpoint: who has asked for what that sends goes on waiting for it. */
static int parting(void)
{
    char room[2];
    fi_addr_t own, peer;
    struct fid_cq *sent = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE), *come = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE);
    struct fid_ep *ep = an_ordinary_one(sent, come, &own, &peer);
    for (uint64_t round = 0; round < 3; round++) {
        POST(fi_trecv(ep, room, 1, NULL, peer, round, 0, room));
        /* A transmit context sends something that nobody wants, and is closed before it is heard; then receive contexts are. */
        if (round == 0) {
            POST(fi_tsend(mine->tx[2], "x", 1, NULL, own, 9, NULL));
            IS(fi_close(&mine->tx[2]->fid), 0);
            mine->tx[2] = NULL;
        } else {
            int index = 2 - (int)round;
            IS(fi_close(&mine->rx[index]->fid), 0);
            mine->rx[index] = NULL;
            POST(fi_tsend(ep, "y", 1, NULL, fi_rx_addr(peer, index, BITS), 1, NULL));
            int err = next_error(sent).err;
            HOLDS(err == FI_ECONNREFUSED || err == FI_ECONNRESET);
        }
        HOLDS(is_empty(come));
        POST(fi_tsend(mine->tx[0], "z", 1, NULL, own, round, NULL));
        IS(next(come, NULL).tag, round);
        next(mine->tx_cq[0], NULL);
    }
    NEED(fi_close(&ep->fid));
    NEED(fi_close(&sent->fid));
    NEED(fi_close(&come->fid));
    return finish();
}

/* A transmit context is called by nobody: who asks whether something has arrived there hears that it has not. */
static int uncalled(void)
{
    char name[48], room[1] = "x";
    uint32_t id;
    fi_addr_t at;
    name_side(mine, name);
    memcpy(&id, name + 4, 4);
    id |= 64;
    memcpy(name + 4, &id, 4);
    name[16] = 1;
    IS(fi_av_insert(sides[1].av, name, 1, &at, 0, NULL), 1);
    struct iovec piece = {room, 1};
    struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = at, .tag = 1};
    POST(fi_tsendmsg(sides[1].tx[0], &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
    IS(next_error(sides[1].tx_cq[0]).err, FI_ECONNRESET);
    return finish();
}

int main(int argc, char **argv)
{
    static const struct staged_case all[] = {
        {"bound", bound, ALONE},     {"messages", messages, ENABLED}, {"sources", sources, ENABLED}, {"memory", memory, ENABLED},
        {"death", death, ENABLED},   {"threads", threads, ENABLED},   {"late", late, OPENED},      {"parting", parting, ENABLED},
        {"uncalled", uncalled, ENABLED},
    };
    return run_staged(argc, argv, all, sizeof(all) / sizeof(*all));
}
