/* What endpoints of the provider gni share, and what waits: shared contexts, other views of an endpoint, operations that
 * begin by a counter, the work of a domain, and datagrams.
 *
 *     shared NAME
 */

#include <rdma/fi_trigger.h>

#include "check.h"

enum { USERS = 3 };

/* A sender, and those it sends to; they share receives where `srx` is there. */
static struct fid_ep *from, *to[USERS], *srx;
static struct fid_stx *stx;
static struct fid_av *av;
static struct fid_cq *tx, *rx;
static struct fid_cntr *sent, *written;
static fi_addr_t peers[USERS];
static uint64_t selective;

static struct fid_ep *an_endpoint(size_t tx_count, size_t rx_count)
{
    struct fi_info *of = fi_dupinfo(info);
    struct fid_ep *ep;
    of->ep_attr->tx_ctx_cnt = tx_count;
    of->ep_attr->rx_ctx_cnt = rx_count;
    NEED(fi_endpoint(domain, of, &ep, NULL));
    fi_freeinfo(of);
    NEED(fi_ep_bind(ep, &av->fid, 0));
    NEED(fi_ep_bind(ep, &tx->fid, FI_TRANSMIT));
    NEED(fi_ep_bind(ep, &rx->fid, FI_RECV | selective));
    return ep;
}

static void begin(enum fi_ep_type type, int is_sharing)
{
    struct fi_info *hints = wish();
    hints->ep_attr->type = type;
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER;
    open_domain(API, hints);
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    tx = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
    rx = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
    av = an_av(FI_AV_TABLE, 0);
    NEED(fi_cntr_open(domain, &attr, &sent, NULL));
    NEED(fi_cntr_open(domain, &attr, &written, NULL));
    if (is_sharing) {
        NEED(fi_stx_context(domain, NULL, &stx, NULL));
        NEED(fi_srx_context(domain, NULL, &srx, NULL));
        NEED(fi_enable(srx));
    }
    size_t shared = is_sharing ? FI_SHARED_CONTEXT : 1;
    from = an_endpoint(shared, 1);
    NEED(fi_ep_bind(from, &sent->fid, FI_SEND));
    NEED(fi_ep_bind(from, &written->fid, FI_WRITE));
    if (is_sharing) {
        IS(fi_enable(from), -FI_EOPBADSTATE);
        NEED(fi_ep_bind(from, &stx->fid, 0));
        IS(fi_ep_bind(from, &stx->fid, 0), -FI_EINVAL);
        IS(fi_ep_bind(from, &srx->fid, 0), -FI_EINVAL);
    }
    NEED(fi_enable(from));
    for (int i = 0; i < USERS; i++) {
        char name[48];
        size_t length = sizeof(name);
        to[i] = an_endpoint(1, shared);
        if (is_sharing) {
            IS(fi_enable(to[i]), -FI_EOPBADSTATE);
            NEED(fi_ep_bind(to[i], &srx->fid, 0));
        }
        NEED(fi_enable(to[i]));
        NEED(fi_getname(&to[i]->fid, name, &length));
        IS(fi_av_insert(av, name, 1, &peers[i], 0, NULL), 1);
    }
}

static int end(void)
{
    IS(fi_close(&from->fid), 0);
    if (srx)
        IS(fi_close(&srx->fid), -FI_EBUSY);
    for (int i = 0; i < USERS; i++)
        if (to[i])
            IS(fi_close(&to[i]->fid), 0);
    if (srx) {
        IS(fi_close(&srx->fid), 0);
        IS(fi_close(&stx->fid), 0);
    }
    struct fid *rest[] = {&av->fid, &tx->fid, &rx->fid, &sent->fid, &written->fid};
    for (size_t i = 0; i < sizeof(rest) / sizeof(*rest); i++)
        IS(fi_close(rest[i]), 0);
    close_domain();
    return verdict();
}

static struct fi_cq_tagged_entry next(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry = {0};
    IS(fi_cq_sread(cq, &entry, 1, NULL, -1), 1);
    return entry;
}

static int is_empty(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 1000; i++)
        if (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN)
            return 0;
    return 1;
}

static int receives(void)
{
    static char room[8][8192], out[8192];
    begin(FI_EP_RDM, 1);
    /* Receives that wait are taken in their order, whichever endpoint a message comes to. */
    for (int i = 0; i < USERS; i++)
        NEED(fi_recv(srx, room[i], sizeof(room[i]), NULL, FI_ADDR_UNSPEC, room[i]));
    for (int i = 0; i < USERS; i++) {
        memset(out, 'a' + i, sizeof(out));
        size_t length = i == 1 ? sizeof(out) : 10;
        NEED(fi_send(from, out, length, NULL, peers[i], NULL));
        struct fi_cq_tagged_entry entry = next(rx);
        HOLDS(entry.op_context == room[i] && entry.len == length && room[i][0] == 'a' + i && room[i][length - 1] == 'a' + i);
        next(tx);
    }
    /* Messages that wait are found, wherever they do, and those of one endpoint in their order. */
    for (int i = 0; i < 2 * USERS; i++) {
        out[0] = (char) i;
        NEED(fi_tsend(from, out, 1, NULL, peers[i % USERS], (uint64_t) (i / USERS), NULL));
        next(tx);
    }
    HOLDS(is_empty(rx));
    int seen = 0;
    for (int i = 0; i < USERS; i++) {
        NEED(fi_trecv(srx, room[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, room[0]));
        IS(next(rx).tag, 1);
        seen |= 1 << room[0][0];
    }
    IS(seen, 7 << USERS);
    for (int i = 0; i < USERS; i++) {
        struct iovec piece = {room[0], 8};
        struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .tag = 9, .ignore = ~0ull, .context = room[0]};
        NEED(fi_trecvmsg(srx, &message, FI_COMPLETION));
        IS(next(rx).tag, 0);
        seen |= 1 << room[0][0];
    }
    IS(seen, 63);
    /* Those that are not tagged are others. */
    NEED(fi_trecv(srx, room[0], 8, NULL, FI_ADDR_UNSPEC, 0, ~0ull, room[0]));
    NEED(fi_send(from, out, 1, NULL, peers[0], NULL));
    next(tx);
    HOLDS(is_empty(rx));
    IS(fi_cancel(&srx->fid, room[1]), -FI_ENOENT);
    IS(fi_cancel(&srx->fid, room[0]), 0);
    struct fi_cq_err_entry failed = {0};
    struct fi_cq_tagged_entry entry;
    IS(fi_cq_sread(rx, &entry, 1, NULL, -1), -FI_EAVAIL);
    IS(fi_cq_readerr(rx, &failed, 0), 1);
    HOLDS(failed.err == FI_ECANCELED && failed.op_context == room[0]);
    NEED(fi_recv(srx, room[0], 8, NULL, FI_ADDR_UNSPEC, room[0]));
    HOLDS(next(rx).op_context == room[0]);
    /* What must not be. */
    IS(fi_recv(to[0], room[0], 8, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPBADSTATE);
    IS(fi_send(srx, out, 1, NULL, peers[0], NULL), -FI_ENOSYS);
    struct iovec piece = {room[0], 8};
    struct fi_msg message = {.msg_iov = &piece, .iov_count = 1};
    IS(fi_recvmsg(srx, &message, FI_MULTI_RECV), -FI_ENOSYS);
    IS(fi_recvmsg(srx, &message, FI_PEEK), -FI_EBADFLAGS);
    IS(srx->msg->recvmsg(srx, NULL, 0), -FI_EINVAL);
    IS(fi_control(&srx->fid, FI_GETWAIT, NULL), -FI_ENOSYS);
    /* Of an endpoint that is closed, the others go on. */
    IS(fi_close(&to[0]->fid), 0);
    to[0] = NULL;
    NEED(fi_recv(srx, room[0], 8, NULL, FI_ADDR_UNSPEC, room[0]));
    NEED(fi_send(from, out, 1, NULL, peers[1], NULL));
    HOLDS(next(rx).op_context == room[0]);
    next(tx);
    /* Nobody takes this one. */
    NEED(fi_recv(srx, room[0], 8, NULL, FI_ADDR_UNSPEC, room[0]));
    return end();
}

static int selections(void)
{
    static char room[8];
    selective = FI_SELECTIVE_COMPLETION;
    begin(FI_EP_RDM, 1);
    struct iovec piece = {room, sizeof(room)};
    struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .context = room};
    NEED(fi_recv(srx, room, sizeof(room), NULL, FI_ADDR_UNSPEC, NULL));
    NEED(fi_recvmsg(srx, &message, FI_COMPLETION));
    for (int i = 0; i < 2; i++) {
        NEED(fi_send(from, "x", 1, NULL, peers[i], NULL));
        next(tx);
    }
    HOLDS(next(rx).op_context == room);
    HOLDS(is_empty(rx));
    return end();
}

static int datagrams(void)
{
    static char room[5000], out[5000];
    begin(FI_EP_DGRAM, 0);
    NEED(fi_recv(to[0], room, sizeof(room), NULL, FI_ADDR_UNSPEC, room));
    memset(out, 7, sizeof(out));
    NEED(fi_send(from, out, sizeof(out), NULL, peers[0], out));
    struct fi_cq_tagged_entry entry = next(rx);
    HOLDS(entry.op_context == room && entry.len == sizeof(out) && room[4999] == 7);
    HOLDS(next(tx).op_context == out);
    /* Where there is no room at all, there is room for nothing. */
    NEED(fi_recv(to[0], NULL, 100, NULL, FI_ADDR_UNSPEC, room));
    NEED(fi_send(from, NULL, 0, NULL, peers[0], NULL));
    IS(next(rx).len, 0);
    next(tx);
    NEED(fi_recv(to[0], NULL, 100, NULL, FI_ADDR_UNSPEC, room));
    NEED(fi_send(from, out, 1, NULL, peers[0], NULL));
    struct fi_cq_err_entry failed = {0};
    IS(fi_cq_sread(rx, &entry, 1, NULL, -1), -FI_EAVAIL);
    IS(fi_cq_readerr(rx, &failed, 0), 1);
    IS(failed.err, FI_ETRUNC);
    next(tx);
    return end();
}

static int triggers(void)
{
    static unsigned char memory[8192], bytes[8192];
    struct fid_mr *mr;
    struct fid_ep *alias = NULL;
    begin(FI_EP_RDM, 0);
    NEED(fi_mr_reg(domain, memory, sizeof(memory), FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL));
    memset(bytes, 1, sizeof(bytes));
    IS(fi_ep_alias(from, &alias, 0), -FI_EINVAL);
    NEED(fi_ep_alias(from, &alias, FI_TRANSMIT | FI_TRIGGER));
    IS(fi_close(&from->fid), -FI_EBUSY);
    /* Writes that begin when others have ended, in any order of thresholds. */
    struct fi_triggered_context second = {.event_type = FI_TRIGGER_THRESHOLD, .trigger.threshold = {.cntr = written, .threshold = 2}};
    struct fi_triggered_context first = {.event_type = FI_TRIGGER_THRESHOLD, .trigger.threshold = {.cntr = written, .threshold = 1}};
    NEED(fi_write(alias, bytes, 8192, NULL, peers[0], 0, 5, &second));
    NEED(fi_write(alias, bytes, 16, NULL, peers[0], 0, 5, &first));
    HOLDS(is_empty(tx) && memory[0] == 0 && fi_cntr_read(written) == 0);
    NEED(fi_write(from, bytes, 1, NULL, peers[0], 0, 5, bytes));
    HOLDS(next(tx).op_context == bytes);
    HOLDS(next(tx).op_context == &first);
    HOLDS(next(tx).op_context == &second);
    NEED(fi_cntr_wait(written, 3, -1));
    HOLDS(memory[8191] == 1);
    /* A counter that the program moves; and what has come so far already begins at once. */
    struct fi_triggered_context message = {.event_type = FI_TRIGGER_THRESHOLD, .trigger.threshold = {.cntr = sent, .threshold = 4}};
    NEED(fi_recv(to[1], memory, 8, NULL, FI_ADDR_UNSPEC, memory));
    NEED(fi_send(alias, "x", 1, NULL, peers[1], &message));
    HOLDS(is_empty(rx));
    NEED(fi_cntr_add(sent, 4));
    HOLDS(next(rx).op_context == memory && next(tx).op_context == &message);
    NEED(fi_recv(to[1], memory, 8, NULL, FI_ADDR_UNSPEC, memory));
    NEED(fi_send(alias, "x", 1, NULL, peers[1], &message));
    HOLDS(next(rx).op_context == memory && next(tx).op_context == &message);
    /* A receive; and memory that may be used again at once. */
    struct iovec piece = {memory, 8};
    struct fi_triggered_context receive = {.event_type = FI_TRIGGER_THRESHOLD, .trigger.threshold = {.cntr = sent, .threshold = 9}};
    struct fi_triggered_context inject = {.event_type = FI_TRIGGER_THRESHOLD, .trigger.threshold = {.cntr = sent, .threshold = 8}};
    struct fi_msg in = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &receive};
    char word[8] = "word";
    struct iovec word_piece = {word, 8};
    struct fi_msg out = {.msg_iov = &word_piece, .iov_count = 1, .addr = peers[1], .context = &inject};
    NEED(fi_recvmsg(to[1], &in, FI_TRIGGER | FI_COMPLETION));
    NEED(fi_sendmsg(from, &out, FI_TRIGGER | FI_INJECT | FI_COMPLETION));
    memset(word, 0, sizeof(word));
    NEED(fi_cntr_set(sent, 8));
    HOLDS(next(tx).op_context == &inject && next(rx).op_context == &receive && strcmp((char *) memory, "word") == 0);
    /* By the order of thresholds, also where the counter passes several at once. */
    struct fi_triggered_context late = {.event_type = FI_TRIGGER_THRESHOLD, .trigger.threshold = {.cntr = sent, .threshold = 12}};
    struct fi_triggered_context early = {.event_type = FI_TRIGGER_THRESHOLD, .trigger.threshold = {.cntr = sent, .threshold = 11}};
    NEED(fi_recv(to[1], memory, 8, NULL, FI_ADDR_UNSPEC, memory));
    NEED(fi_recv(to[1], memory, 8, NULL, FI_ADDR_UNSPEC, &memory[1]));
    NEED(fi_send(alias, "late", 4, NULL, peers[1], &late));
    NEED(fi_send(alias, "soon", 4, NULL, peers[1], &early));
    NEED(fi_cntr_set(sent, 12));
    HOLDS(next(tx).op_context == &early && next(tx).op_context == &late);
    next(rx);
    HOLDS(next(rx).op_context == &memory[1] && memcmp(memory, "late", 4) == 0);
    /* What never begins ends with its endpoint, and lets its counter go. */
    message.trigger.threshold.threshold = 1000;
    NEED(fi_send(alias, "x", 1, NULL, peers[1], &message));
    IS(fi_close(&sent->fid), -FI_EBUSY);
    message.event_type = (enum fi_trigger_event) 7;
    IS(fi_send(alias, "x", 1, NULL, peers[1], &message), -FI_ENOSYS);
    message.event_type = FI_TRIGGER_THRESHOLD;
    message.trigger.threshold.cntr = NULL;
    IS(fi_send(alias, "x", 1, NULL, peers[1], &message), -FI_EINVAL);
    IS(fi_send(alias, "x", 1, NULL, peers[1], NULL), -FI_EINVAL);
    /* What cannot begin says so then. */
    struct fi_triggered_context nobody = {.event_type = FI_TRIGGER_THRESHOLD, .trigger.threshold = {.cntr = sent, .threshold = 1}};
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    NEED(fi_send(alias, "x", 1, NULL, 77, &nobody));
    IS(fi_cq_sread(tx, &entry, 1, NULL, -1), -FI_EAVAIL);
    IS(fi_cq_readerr(tx, &failed, 0), 1);
    HOLDS(failed.err == FI_EINVAL && failed.op_context == &nobody);
    IS(fi_close(&alias->fid), 0);
    IS(fi_close(&mr->fid), 0);
    return end();
}

/* Something of the domain's queue: what it is, and by whose counts it begins and ends. */
static struct fi_deferred_work later(struct fid_cntr *triggering, uint64_t threshold, struct fid_cntr *completion,
                                     enum fi_op_type type, void *op)
{
    struct fi_deferred_work work = {.threshold = threshold, .triggering_cntr = triggering, .completion_cntr = completion, .op_type = type};
    work.op.msg = op;
    return work;
}

static int queue(struct fi_deferred_work *work) { return fi_control(&domain->fid, FI_QUEUE_WORK, work); }

/* Operations that the domain queues, of each kind, which begin by a counter and end in another. */
static int work(void)
{
    static unsigned char memory[64], bytes[64], in[64], tagged_in[64];
    static uint64_t values[3], operand = 5, fetched, compared = 12;
    struct fid_cntr *go, *done, *moved;
    struct fid_mr *mr, *values_mr;
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    begin(FI_EP_RDM, 0);
    NEED(fi_mr_reg(domain, memory, sizeof(memory), FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 5, 0, &mr, NULL));
    NEED(fi_mr_reg(domain, values, sizeof(values), FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 6, 0, &values_mr, NULL));
    struct fid_cntr **counters[] = {&go, &done, &moved};
    for (int i = 0; i < 3; i++)
        NEED(fi_cntr_open(domain, &attr, counters[i], NULL));

    /* Messages, of which there is an entry where one is asked for; failures count towards the threshold. */
    struct iovec out_piece = {bytes, 8}, in_piece = {in, 8}, tagged_piece = {tagged_in, 8};
    struct fi_op_msg recv = {to[1], {.msg_iov = &in_piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in}, FI_COMPLETION};
    struct fi_op_msg send = {from, {.msg_iov = &out_piece, .iov_count = 1, .addr = peers[1], .context = bytes}, 0};
    struct fi_op_tagged trecv = {to[1], {.msg_iov = &tagged_piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 7}, 0};
    struct fi_op_tagged tsend = {from, {.msg_iov = &out_piece, .iov_count = 1, .addr = peers[1], .tag = 7, .context = &tsend}, FI_COMPLETION | FI_INJECT};
    struct fi_deferred_work messages[] = {
        later(go, 2, done, FI_OP_SEND, &send), later(go, 1, done, FI_OP_RECV, &recv),
        later(go, 2, NULL, FI_OP_TSEND, &tsend), later(go, 1, done, FI_OP_TRECV, &trecv)};
    for (int i = 0; i < 4; i++)
        IS(queue(&messages[i]), 0);
    HOLDS(is_empty(tx) && is_empty(rx) && fi_cntr_read(done) == 0);
    IS(fi_close(&go->fid), -FI_EBUSY);
    /* Memory is read when they begin, that of an injected one too. */
    memset(bytes, 1, sizeof(bytes));
    NEED(fi_cntr_add(go, 1));
    NEED(fi_cntr_adderr(go, 1));
    NEED(fi_cntr_wait(done, 3, -1));
    HOLDS(in[7] == 1 && tagged_in[7] == 1);
    HOLDS(next(rx).op_context == in && is_empty(rx));
    HOLDS(next(tx).op_context == &tsend && is_empty(tx));
    IS(fi_cntr_read(sent), 0);

    /* Memory of peers; what has come so far begins at once. */
    struct iovec piece = {bytes, 16}, back = {in, 16};
    struct fi_rma_iov place = {0, 16, 5};
    struct fi_op_rma write = {from, {.msg_iov = &piece, .iov_count = 1, .addr = peers[1], .rma_iov = &place, .rma_iov_count = 1}, 0};
    struct fi_op_rma read = {from, {.msg_iov = &back, .iov_count = 1, .addr = peers[1], .rma_iov = &place, .rma_iov_count = 1}, 0};
    struct fi_deferred_work rma[] = {later(go, 1, done, FI_OP_WRITE, &write), later(done, 4, done, FI_OP_READ, &read)};
    IS(queue(&rma[1]), 0);
    IS(queue(&rma[0]), 0);
    NEED(fi_cntr_wait(done, 5, -1));
    HOLDS(memory[15] == 1 && in[15] == 1 && is_empty(tx));

    /* Values there. */
    struct fi_ioc value = {&operand, 1}, result = {&fetched, 1}, with = {&compared, 1};
    struct fi_rma_ioc there[] = {{0, 1, 6}, {8, 1, 6}, {16, 1, 6}};
    values[1] = 7, values[2] = 12;
    struct fi_msg_atomic sum = {.msg_iov = &value, .iov_count = 1, .addr = peers[1], .rma_iov = &there[0], .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM};
    struct fi_op_atomic base = {from, sum, 0};
    struct fi_op_fetch_atomic fetch = {from, sum, {.msg_iov = &result, .iov_count = 1}, 0};
    struct fi_op_compare_atomic compare = {from, sum, {.msg_iov = &result, .iov_count = 1}, {.msg_iov = &with, .iov_count = 1}, 0};
    fetch.msg.rma_iov = &there[1], compare.msg.rma_iov = &there[2], compare.msg.op = FI_CSWAP;
    struct fi_deferred_work atomics[] = {
        later(go, 1, done, FI_OP_ATOMIC, &base), later(done, 6, done, FI_OP_FETCH_ATOMIC, &fetch), later(done, 7, done, FI_OP_COMPARE_ATOMIC, &compare)};
    IS(queue(&atomics[0]), 0);
    IS(queue(&atomics[1]), 0);
    NEED(fi_cntr_wait(done, 7, -1));
    HOLDS(fetched == 7 && values[0] == 5 && values[1] == 12);
    IS(queue(&atomics[2]), 0);
    NEED(fi_cntr_wait(done, 8, -1));
    HOLDS(fetched == 12 && values[2] == 5);

    /* Counters, by the order of thresholds and not of the queue; nothing counts them. */
    struct fi_op_cntr add = {moved, 3}, set = {moved, 100}, more = {go, 1};
    struct fi_deferred_work counts[] = {
        later(go, 4, NULL, FI_OP_CNTR_ADD, &add), later(go, 3, NULL, FI_OP_CNTR_SET, &set), later(moved, 103, NULL, FI_OP_CNTR_ADD, &more)};
    for (int i = 0; i < 3; i++)
        IS(queue(&counts[i]), 0);
    NEED(fi_cntr_add(go, 2));
    HOLDS(fi_cntr_read(moved) == 103 && fi_cntr_read(go) == 4);
    counts[0].completion_cntr = done;
    IS(queue(&counts[0]), -FI_EINVAL);

    /* What is taken back, or flushed, never begins, and lets its counters go. */
    for (int i = 0; i < 4; i++)
        messages[i].threshold = 1000;
    for (int i = 0; i < 4; i++)
        IS(queue(&messages[i]), 0);
    IS(fi_control(&domain->fid, FI_CANCEL_WORK, &messages[0]), 0);
    IS(fi_control(&domain->fid, FI_CANCEL_WORK, &messages[0]), -FI_ENOENT);
    IS(fi_control(&domain->fid, FI_FLUSH_WORK, moved), 0);
    IS(fi_control(&domain->fid, FI_CANCEL_WORK, &messages[1]), 0);
    IS(fi_control(&domain->fid, FI_FLUSH_WORK, go), 0);
    IS(fi_control(&domain->fid, FI_CANCEL_WORK, &messages[2]), -FI_ENOENT);
    IS(queue(&messages[3]), 0);
    IS(fi_control(&domain->fid, FI_FLUSH_WORK, NULL), 0);
    NEED(fi_cntr_set(go, 2000));
    HOLDS(fi_cntr_read(done) == 8 && is_empty(tx) && is_empty(rx));

    /* What cannot begin is counted; what cannot be said is refused. */
    send.msg.addr = 77;
    IS(queue(&messages[0]), 0);
    HOLDS(fi_cntr_readerr(done) == 1 && is_empty(tx));
    messages[0].op_type = (enum fi_op_type) 99;
    IS(queue(&messages[0]), -FI_ENOSYS);
    messages[0].op_type = FI_OP_SEND;
    messages[0].triggering_cntr = NULL;
    IS(queue(&messages[0]), -FI_EINVAL);
    send.flags = FI_TRIGGER;
    messages[0].triggering_cntr = go;
    IS(queue(&messages[0]), -FI_EBADFLAGS);
    recv.flags = FI_MULTI_RECV;
    IS(queue(&messages[1]), -FI_ENOSYS);
    send.ep = NULL;
    IS(queue(&messages[0]), -FI_EINVAL);
    IS(fi_control(&domain->fid, FI_QUEUE_WORK, NULL), -FI_EINVAL);

    /* Where there is no room they wait, and keep their order. */
    struct fi_op_msg ones[] = {send, send};
    struct fi_deferred_work waiting[] = {later(go, 3002, done, FI_OP_SEND, &ones[1]), later(go, 3001, done, FI_OP_SEND, &ones[0])};
    while (fi_send(from, bytes, 4, NULL, peers[1], NULL) == 0)
        ;
    for (int i = 0; i < 2; i++) {
        ones[i].ep = from, ones[i].flags = FI_COMPLETION;
        ones[i].msg.addr = peers[1], ones[i].msg.context = &ones[i];
    }
    for (int i = 0; i < 2; i++)
        IS(queue(&waiting[i]), 0);
    NEED(fi_cntr_set(go, 4000));
    for (int seen = 0; seen < 2;) {
        void *ended = next(tx).op_context;
        if (ended == NULL)
            continue;
        HOLDS(ended == &ones[seen]);
        seen++;
    }
    NEED(fi_cntr_wait(done, 10, -1));
    for (int i = 0; i < 3; i++)
        IS(fi_close(&(*counters[i])->fid), 0);
    IS(fi_close(&mr->fid), 0);
    IS(fi_close(&values_mr->fid), 0);
    return end();
}

/* Counters that the domain changes, where nobody has opened anything that data goes through. */
static int counts(void)
{
    struct fi_info *hints = wish();
    struct fid_cntr *go, *done;
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    hints->caps = FI_MSG | FI_TRIGGER;
    open_domain(API, hints);
    NEED(fi_cntr_open(domain, &attr, &go, NULL));
    NEED(fi_cntr_open(domain, &attr, &done, NULL));
    struct fi_op_cntr add = {done, 3}, more = {done, 4};
    struct fi_deferred_work work[] = {later(go, 1, NULL, FI_OP_CNTR_ADD, &add), later(done, 3, NULL, FI_OP_CNTR_ADD, &more)};
    for (int i = 0; i < 2; i++)
        IS(queue(&work[i]), 0);
    IS(fi_cntr_wait(done, 1, 0), -FI_ETIMEDOUT);
    NEED(fi_cntr_add(go, 1));
    NEED(fi_cntr_wait(done, 7, -1));
    IS(fi_cntr_read(done), 7);
    IS(fi_close(&go->fid), 0);
    IS(fi_close(&done->fid), 0);
    close_domain();
    return verdict();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {{"receives", receives}, {"selections", selections}, {"datagrams", datagrams}, {"triggers", triggers}, {"work", work}, {"counts", counts}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (argc > 1 && strcmp(argv[1], all[i].name) == 0)
            return all[i].run();
    return 2;
}
