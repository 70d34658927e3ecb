/* What the programs of scalable endpoints share: two of them, in a process or in two, with what belongs to them. */
#ifndef HAWSER_GNI_SCALABLE_H
#define HAWSER_GNI_SCALABLE_H

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

static inline struct fi_info *scalable_info(size_t contexts)
{
    struct fi_info *of = fi_dupinfo(info);
    of->ep_attr->tx_ctx_cnt = of->ep_attr->rx_ctx_cnt = contexts;
    return of;
}

static inline struct fid_ep *a_sep(size_t contexts)
{
    struct fi_info *of = scalable_info(contexts);
    struct fid_ep *sep = NULL;
    NEED(fi_scalable_ep(domain, of, &sep, NULL));
    fi_freeinfo(of);
    return sep;
}

static inline struct fid_av *an_av_with(int bits)
{
    struct fi_av_attr attr = {.type = av_type, .rx_ctx_bits = bits};
    struct fid_av *av = NULL;
    NEED(fi_av_open(domain, &attr, &av, NULL));
    return av;
}

static inline void open_tx(struct side *side, int i)
{
    NEED(fi_tx_context(side->sep, i, NULL, &side->tx[i], NULL));
    NEED(fi_ep_bind(side->tx[i], &side->tx_cq[i]->fid, FI_TRANSMIT));
    NEED(fi_ep_bind(side->tx[i], &side->sent[i]->fid, FI_SEND));
    NEED(fi_ep_bind(side->tx[i], &side->written[i]->fid, FI_WRITE | FI_READ));
}

static inline void open_rx(struct side *side, int i)
{
    NEED(fi_rx_context(side->sep, i, NULL, &side->rx[i], NULL));
    NEED(fi_ep_bind(side->rx[i], &side->rx_cq[i]->fid, FI_RECV));
    NEED(fi_ep_bind(side->rx[i], &side->received[i]->fid, FI_RECV));
    NEED(fi_ep_bind(side->rx[i], &side->remote[i]->fid, FI_REMOTE_READ | FI_REMOTE_WRITE));
}

static inline struct fid_cntr *some_counter(void)
{
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *counter = NULL;
    NEED(fi_cntr_open(domain, &attr, &counter, NULL));
    return counter;
}

static inline void open_side(struct side *side, int enables)
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

static inline void close_side(struct side *side)
{
    for (int i = 0; i < CONTEXTS; i++) {
        IS(fi_close(&side->sep->fid), -FI_EBUSY);
        if (side->rx[i])
            IS(fi_close(&side->rx[i]->fid), 0);
        if (side->tx[i])
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

static inline void open_scalable_domain(void)
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

static inline void know(struct side *side, const char *name)
{
    IS(fi_av_insert(side->av, name, 1, &side->peer, 0, NULL), 1);
}

static inline void name_side(struct side *side, char *name)
{
    size_t length = 48;
    NEED(fi_getname(&side->sep->fid, name, &length));
    IS(length, 48);
}

static inline void start(const char *how, int enables)
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

static inline int finish(void)
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
static inline struct side *from(int turn)
{
    return is_together ? &sides[turn & 1] : (turn & 1) == is_child ? mine : NULL;
}

static inline struct side *to(int turn)
{
    return from(turn + 1);
}

static inline void idle(void)
{
    for (int i = 0; i < CONTEXTS; i++)
        for (int k = 0; k < 1 + is_together; k++)
            HOLDS(is_empty(sides[k].tx_cq[i]) && is_empty(sides[k].rx_cq[i]));
}

/* How much of the two is there when a case begins. */
enum stage { ALONE, OPENED, ENABLED };
struct staged_case {
    const char *name;
    int (*run)(void);
    enum stage stage;
};

/* Runs the case that the command line names. */
static inline int run_staged(int argc, char **argv, const struct staged_case *all, size_t count)
{
    if (argc < 3)
        return 2;
    if (argc > 3 && strcmp(argv[3], "table") == 0)
        av_type = FI_AV_TABLE;
    for (size_t i = 0; i < count; i++)
        if (strcmp(argv[1], all[i].name) == 0) {
            if (all[i].stage != ALONE)
                start(argv[2], all[i].stage == ENABLED);
            return all[i].run();
        }
    return 2;
}

#endif
