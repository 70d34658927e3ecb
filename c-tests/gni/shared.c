/* What endpoints of the provider gni share, and what waits: shared contexts, other views of an endpoint, operations that
 * begin by a counter, and datagrams.
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
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_TRIGGER;
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

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {{"receives", receives}, {"selections", selections}, {"datagrams", datagrams}, {"triggers", triggers}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (argc > 1 && strcmp(argv[1], all[i].name) == 0)
            return all[i].run();
    return 2;
}
