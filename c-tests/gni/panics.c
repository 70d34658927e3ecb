/* Calls every entry of the provider gni, one of which panics: HAWSER_PROVOKE names it. That one answers -FI_EOTHER, or what
 * stands for nothing where it answers no code, and all others go on.
 *
 *     panics ENTRY
 */

#include "check.h"

static const char *wanted;
static int seen;

/* What an entry has answered: the panic's code where it is the one. */
static long long told(const char *entry, long long answer, long long panicked)
{
    if (strcmp(entry, wanted) != 0)
        return answer;
    seen++;
    IS(answer, panicked);
    return -FI_EOTHER;
}

#define CALL(entry, call) told(entry, call, -FI_EOTHER)

static char room[256];

static void close_it(const char *entry, struct fid *fid)
{
    if (fid)
        CALL(entry, fi_close(fid));
}

static void queues(void)
{
    struct fi_cq_attr cq_attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fi_cntr_attr counter_attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fi_eq_attr eq_attr = {.flags = FI_WRITE, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cq *cq = NULL;
    struct fid_cntr *counter = NULL;
    struct fid_eq *eq = NULL;
    struct fi_poll_attr poll_attr = {0};
    struct fid_poll *set = NULL;
    struct fi_wait_attr wait_attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_wait *sleepers = NULL;
    struct fi_cq_err_entry cq_error = {0};
    struct fi_eq_err_entry eq_error = {0};
    enum fi_wait_obj object;
    fi_addr_t source;
    uint32_t event;
    if (CALL("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL)) == 0) {
        CALL("fi_cq_readfrom", fi_cq_readfrom(cq, room, 1, &source));
        CALL("fi_cq_readerr", fi_cq_readerr(cq, &cq_error, 0));
        CALL("fi_cq_sreadfrom", fi_cq_sreadfrom(cq, room, 1, &source, NULL, 0));
        CALL("fi_cq_signal", fi_cq_signal(cq));
        CALL("fi_control of a cq", fi_control(&cq->fid, FI_GETWAITOBJ, &object));
        told("fi_cq_strerror", *fi_cq_strerror(cq, FI_EIO, NULL, NULL, 0), 0);
        struct fid *fids[] = {&cq->fid};
        CALL("fi_trywait", fi_trywait(fabric, fids, 1));
        if (CALL("fi_poll_open", fi_poll_open(domain, &poll_attr, &set)) == 0) {
            void *context;
            CALL("fi_poll_add", fi_poll_add(set, &cq->fid, 0));
            CALL("fi_poll", fi_poll(set, &context, 1));
            CALL("fi_poll_del", fi_poll_del(set, &cq->fid, 0));
            close_it("fi_close of a poll set", &set->fid);
        }
        if (CALL("fi_wait_open", fi_wait_open(fabric, &wait_attr, &sleepers)) == 0) {
            CALL("fi_wait", fi_wait(sleepers, 0));
            CALL("fi_control of a wait set", fi_control(&sleepers->fid, FI_GETWAITOBJ, &object));
            close_it("fi_close of a wait set", &sleepers->fid);
        }
        close_it("fi_close of a cq", &cq->fid);
    }
    if (CALL("fi_cntr_open", fi_cntr_open(domain, &counter_attr, &counter, NULL)) == 0) {
        fi_cntr_add(counter, 7);
        fi_cntr_adderr(counter, 7);
        told("fi_cntr_read", (long long) fi_cntr_read(counter), 0);
        told("fi_cntr_readerr", (long long) fi_cntr_readerr(counter), 0);
        CALL("fi_cntr_add", fi_cntr_add(counter, 1));
        CALL("fi_cntr_adderr", fi_cntr_adderr(counter, 1));
        CALL("fi_cntr_set", fi_cntr_set(counter, 1));
        CALL("fi_cntr_seterr", fi_cntr_seterr(counter, 1));
        CALL("fi_cntr_wait", fi_cntr_wait(counter, 0, 0));
        CALL("fi_control of a counter", fi_control(&counter->fid, FI_GETWAITOBJ, &object));
        close_it("fi_close of a counter", &counter->fid);
    }
    if (CALL("fi_eq_open", fi_eq_open(fabric, &eq_attr, &eq, NULL)) == 0) {
        CALL("fi_eq_write", fi_eq_write(eq, FI_NOTIFY, room, 24, 0));
        CALL("fi_eq_read", fi_eq_read(eq, &event, room, sizeof(room), FI_PEEK));
        CALL("fi_eq_sread", fi_eq_sread(eq, &event, room, sizeof(room), 0, 0));
        CALL("fi_eq_readerr", fi_eq_readerr(eq, &eq_error, 0));
        CALL("fi_control of an eq", fi_control(&eq->fid, FI_GETWAITOBJ, &object));
        told("fi_eq_strerror", *fi_eq_strerror(eq, FI_EIO, NULL, NULL, 0), 0);
        close_it("fi_close of an eq", &eq->fid);
    }
}

static void addresses(void)
{
    struct fi_av_attr attr = {0};
    struct fi_eq_attr eq_attr = {0};
    struct fid_av *av = NULL;
    struct fid_eq *eq = NULL;
    fi_addr_t number;
    size_t length = sizeof(room);
    if (CALL("fi_av_open", fi_av_open(domain, &attr, &av, NULL)))
        return;
    CALL("fi_av_insert", fi_av_insert(av, info->src_addr, 1, &number, 0, NULL));
    CALL("fi_av_insertsym", fi_av_insertsym(av, "192.0.2.7", 1, "9", 1, &number, 0, NULL));
    CALL("fi_av_lookup", fi_av_lookup(av, 0, room, &length));
    length = sizeof(room);
    told("fi_av_straddr", fi_av_straddr(av, info->src_addr, room, &length) != NULL, 0);
    CALL("fi_av_remove", fi_av_remove(av, &number, 1, 0));
    if (fi_eq_open(fabric, &eq_attr, &eq, NULL) == 0)
        CALL("fi_av_bind", fi_av_bind(av, &eq->fid, 0));
    close_it("fi_close of an av", &av->fid);
    if (eq)
        fi_close(&eq->fid);
}

static void memory(void)
{
    struct iovec piece = {room, sizeof(room)};
    struct fi_mr_attr attr = {.mr_iov = &piece, .iov_count = 1, .requested_key = 2};
    struct fid_mr *mr = NULL;
    struct fi_atomic_attr values;
    CALL("fi_query_atomic", fi_query_atomic(domain, FI_UINT64, FI_SUM, &values, 0));
    if (CALL("fi_mr_regv", fi_mr_regv(domain, &piece, 1, FI_READ, 0, 1, 0, &mr, NULL)) == 0)
        fi_close(&mr->fid);
    if (CALL("fi_mr_regattr", fi_mr_regattr(domain, &attr, 0, &mr)) == 0)
        fi_close(&mr->fid);
    if (CALL("fi_mr_reg", fi_mr_reg(domain, room, 1, FI_READ, 0, 3, 0, &mr, NULL)) == 0) {
        CALL("fi_mr_bind", fi_mr_bind(mr, &domain->fid, 0));
        close_it("fi_close of an mr", &mr->fid);
    }
}

static void endpoints(void)
{
    struct fid_ep *ep = NULL;
    uint64_t flags = FI_TRANSMIT;
    size_t length = sizeof(size_t);
    if (CALL("fi_endpoint", fi_endpoint(domain, info, &ep, NULL)))
        return;
    CALL("fi_ep_bind", fi_ep_bind(ep, &domain->fid, 0));
    CALL("fi_control of an endpoint", fi_control(&ep->fid, FI_GETOPSFLAG, &flags));
    struct fi_msg message = {0};
    struct fi_msg_tagged tagged = {0};
    CALL("fi_cancel", fi_cancel(&ep->fid, NULL));
    CALL("fi_send", fi_tsend(ep, room, 1, NULL, 0, 0, NULL));
    CALL("fi_recv", fi_trecv(ep, room, 1, NULL, 0, 0, 0, NULL));
    CALL("fi_sendmsg", fi_sendmsg(ep, &message, 0));
    CALL("fi_recvmsg", fi_recvmsg(ep, &message, 0));
    CALL("fi_tsendmsg", fi_tsendmsg(ep, &tagged, 0));
    CALL("fi_trecvmsg", fi_trecvmsg(ep, &tagged, 0));
    uint64_t word = 0;
    CALL("fi_rma", fi_read(ep, &word, sizeof(word), NULL, 0, 0, 0, NULL));
    CALL("fi_atomic", fi_atomic(ep, &word, 1, NULL, 0, 0, 0, FI_UINT64, FI_SUM, NULL));
    CALL("fi_atomicvalid", fi_atomicvalid(ep, FI_UINT64, FI_SUM, &length));
    length = sizeof(size_t);
    CALL("fi_getopt", fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, room, &length));
    CALL("fi_setopt", fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, room, length));
    length = sizeof(room);
    CALL("fi_getname", fi_getname(&ep->fid, room, &length));
    CALL("fi_setname", fi_setname(&ep->fid, info->src_addr, info->src_addrlen));
    close_it("fi_close of an endpoint", &ep->fid);
}

static void shared(void)
{
    struct fid_stx *stx = NULL;
    struct fid_ep *srx = NULL;
    if (CALL("fi_stx_context", fi_stx_context(domain, NULL, &stx, NULL)) == 0)
        close_it("fi_close of a shared transmit context", &stx->fid);
    if (CALL("fi_srx_context", fi_srx_context(domain, NULL, &srx, NULL)) == 0) {
        CALL("fi_control of a shared receive context", fi_control(&srx->fid, FI_ENABLE, NULL));
        close_it("fi_close of a shared receive context", &srx->fid);
    }
}

static void scalable(void)
{
    struct fid_ep *sep = NULL, *tx = NULL, *rx = NULL;
    size_t length = sizeof(room);
    if (CALL("fi_scalable_ep", fi_scalable_ep(domain, info, &sep, NULL)))
        return;
    CALL("fi_scalable_ep_bind", fi_scalable_ep_bind(sep, &domain->fid, 0));
    CALL("fi_control of a scalable endpoint", fi_control(&sep->fid, FI_GETWAIT, NULL));
    CALL("fi_getname of a scalable endpoint", fi_getname(&sep->fid, room, &length));
    if (CALL("fi_tx_context", fi_tx_context(sep, 0, NULL, &tx, NULL)) == 0)
        fi_close(&tx->fid);
    if (CALL("fi_rx_context", fi_rx_context(sep, 0, NULL, &rx, NULL)) == 0)
        fi_close(&rx->fid);
    close_it("fi_close of a scalable endpoint", &sep->fid);
}

/* Nothing here is ever connected. */
static void connections(void)
{
    struct fi_info *of = fi_dupinfo(info);
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_eq *eq = NULL;
    struct fid_pep *pep = NULL;
    struct fid_ep *ep = NULL;
    size_t length = sizeof(room);
    of->ep_attr->type = FI_EP_MSG;
    if (fi_eq_open(fabric, &eq_attr, &eq, NULL) == 0 && CALL("fi_passive_ep", fi_passive_ep(fabric, of, &pep, NULL)) == 0) {
        CALL("fi_pep_bind", fi_pep_bind(pep, &eq->fid, 0));
        CALL("fi_listen", fi_listen(pep));
        CALL("fi_reject", fi_reject(pep, NULL, NULL, 0));
        close_it("fi_close of a passive endpoint", &pep->fid);
    }
    if (fi_endpoint(domain, of, &ep, NULL) == 0) {
        CALL("fi_connect", fi_connect(ep, of->src_addr, NULL, 0));
        CALL("fi_accept", fi_accept(ep, NULL, 0));
        CALL("fi_shutdown", fi_shutdown(ep, 0));
        CALL("fi_getpeer", fi_getpeer(ep, room, &length));
        fi_close(&ep->fid);
    }
    if (eq)
        fi_close(&eq->fid);
    fi_freeinfo(of);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    wanted = argv[1];
    struct fi_info *hints = wish();
    int code = fi_getinfo(API, NULL, NULL, 0, hints, &info);
    fi_freeinfo(hints);
    if (strcmp(wanted, "fi_getinfo") == 0 || strcmp(wanted, "fi_prov_ini") == 0) {
        /* Nothing is there, which libfabric says in a word of its own. */
        IS(code, -FI_ENODATA);
        return verdict();
    }
    NEED(code);
    if (CALL("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL)) == 0) {
        if (CALL("fi_domain", fi_domain(fabric, info, &domain, NULL)) == 0) {
            queues();
            addresses();
            memory();
            endpoints();
            shared();
            scalable();
            connections();
            CALL("fi_control of a domain", fi_control(&domain->fid, FI_FLUSH_WORK, NULL));
            close_it("fi_close of a domain", &domain->fid);
        }
        close_it("fi_close of a fabric", &fabric->fid);
    }
    fi_freeinfo(info);
    IS(seen, 1);
    return verdict();
}
