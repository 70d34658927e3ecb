/* The objects of scalable endpoints of the provider gni: what is refused, and how they are closed.
 *
 *     scalable-objects NAME alone|together
 */

#include "scalable.h"

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

/* An endpoint of this name, or why there is none. */
static int named(const char *id, size_t contexts, struct fid_ep **ep)
{
    char text[64];
    struct fi_info *hints = wish(), *found = NULL;
    hints->caps = info->caps;
    hints->addr_format = FI_ADDR_STR;
    hints->src_addrlen = (size_t)snprintf(text, sizeof(text), "gni;127.0.0.1;%s", id) + 1;
    hints->src_addr = strdup(text);
    hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = contexts;
    NEED(fi_getinfo(API, NULL, NULL, 0, hints, &found));
    int code = contexts > 1 ? fi_scalable_ep(domain, found, ep, NULL) : fi_endpoint(domain, found, ep, NULL);
    fi_freeinfo(found);
    fi_freeinfo(hints);
    return code;
}

/* Names of contexts are nobody's to choose, and who has chosen a name has no contexts where there is no room for theirs. */
static int names(void)
{
    static const char *const of_contexts[] = {"0x20010005", "0x40001041", "0x3fff0001", "0x7fffffff"};
    static const char *const others[] = {"30000", "0x30000", "0x40001000", "0x80000007"};
    struct fid_ep *ep, *sep, *tx;
    char name[48], own[48];
    size_t length = sizeof(own);
    open_scalable_domain();
    for (size_t i = 0; i < sizeof(of_contexts) / sizeof(*of_contexts); i++) {
        IS(named(of_contexts[i], 1, &ep), -FI_EADDRNOTAVAIL);
        IS(named(of_contexts[i], 2, &ep), -FI_EADDRNOTAVAIL);
        NEED(named(others[i], 1, &ep));
        NEED(fi_close(&ep->fid));
    }
    IS(named("0x30000", 2, &ep), -FI_EADDRNOTAVAIL);
    NEED(named("30000", 2, &sep));
    IS(named("30000", 1, &ep), -FI_EADDRINUSE);
    struct fi_info *plain = fi_dupinfo(info);
    plain->ep_attr->tx_ctx_cnt = plain->ep_attr->rx_ctx_cnt = 1;
    NEED(fi_endpoint(domain, plain, &ep, NULL));
    fi_freeinfo(plain);
    /* Nor can an endpoint have such a name later; one that it may have says nothing of contexts. */
    uint32_t id = 0x20000000 | 64 << 16 | 30000;
    NEED(fi_getname(&ep->fid, name, &length));
    memcpy(name + 4, &id, 4);
    IS(fi_setname(&ep->fid, name, 48), -FI_EADDRNOTAVAIL);
    id = 30002;
    memcpy(name + 4, &id, 4);
    name[16] = 3;
    NEED(fi_setname(&ep->fid, name, 48));
    NEED(fi_getname(&ep->fid, own, &length));
    IS(own[16], 0);
    NEED(fi_tx_context(sep, 0, NULL, &tx, NULL));
    NEED(fi_close(&tx->fid));
    NEED(fi_close(&ep->fid));
    NEED(fi_close(&sep->fid));
    close_domain();
    return verdict();
}

int main(int argc, char **argv)
{
    static const struct staged_case all[] = {
        {"objects", objects, ALONE}, {"names", names, ALONE}, {"refusals", refusals, OPENED}, {"closing", closing, ENABLED}};
    return run_staged(argc, argv, all, sizeof(all) / sizeof(*all));
}
