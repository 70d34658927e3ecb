/* A provider that fails on demand, loaded by an unmodified libfabric (FI_PROVIDER_PATH, a file named
 * lib*-fi.so). It is a thin layer over one of libfabric's own: it hands out that one's endpoints under
 * the name `faulty`, with these faults, each from the environment and each meant for one rank:
 *
 *   FAULTY_UNDER   the provider below; without it `tcp;ofi_rxm`. One that is no layered one stays in the name:
 *                  `net;faulty`, `tcp;faulty`
 *   FAULTY_RANK    the rank that has the faults; without it every rank
 *   FAULTY_AFTER   operations of the faulty kind that go well before, without it 0
 *   FAULTY_TIMES   faults of the kind, then all goes well again; without it 1
 *   FAULTY_KIND    send-error, recv-error    the completion of a send or receive becomes an error entry
 *                  send-refused, recv-refused  fi_tsend and its kin, fi_trecv and its kin return -FAULTY_CODE
 *                  send-again, recv-again    they return -FI_EAGAIN
 *                  take-refused, take-again, take-error   the same of the receive of a claimed message alone
 *                  peek-error, peek-refused  the answer to a peek becomes an error entry; a peek returns -FAULTY_CODE
 *                  queue                     fi_cq_read returns -FAULTY_CODE
 *                  overrun                   the queue says in an error entry of nobody's that completions are lost
 *                  listen-refused            fi_recv, outside tag matching, returns -FAULTY_CODE
 *   FAULTY_CODE    the positive fi_errno(3) code; without it FI_EIO
 *   FAULTY_LEAST, FAULTY_MOST   messages of fewer bytes, or of more, go well
 *
 * What fails with an error entry has taken place below, as on a network that loses the news of it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 64, HELD = 1024 };

static const char *under = "tcp;ofi_rxm";
static const char *kind = "";
static long after, times, least, most;
static int code = FI_EIO;

/* The tables of the provider below; a process opens one endpoint. */
static struct fi_ops_fabric fabric_ops;
static struct fi_ops_domain domain_ops;
static struct fi_ops_tagged tagged;
static struct fi_ops_msg untagged;
static struct fi_ops_cq cq_ops;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Operations whose completion is to become an error entry. */
static void *doomed[HELD];
static unsigned doomed_count;
/* The completion that failed, until its error entry is read; and those behind it. */
static struct fi_cq_tagged_entry failed;
static bool is_failed;
/* The queue has lost completions, and has not said so yet. */
static bool is_overrun;
static struct fi_cq_tagged_entry held[HELD];
static size_t held_first, held_count;

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtol(text, NULL, 10);
}

static void set_up(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    long wanted = number("FAULTY_RANK", -1);
    if (getenv("FAULTY_UNDER") != NULL)
        under = getenv("FAULTY_UNDER");
    if (getenv("FAULTY_KIND") != NULL && (wanted < 0 || (rank != NULL && strtol(rank, NULL, 10) == wanted)))
        kind = getenv("FAULTY_KIND");
    after = number("FAULTY_AFTER", 0);
    times = number("FAULTY_TIMES", 1);
    least = number("FAULTY_LEAST", 0);
    most = number("FAULTY_MOST", 1L << 60);
    code = (int)number("FAULTY_CODE", FI_EIO);
}

/* Whether the fault strikes this one. */
static bool strikes(const char *which, size_t size)
{
    bool now = false;
    if (strcmp(kind, which) != 0 || (long)size < least || (long)size > most)
        return false;
    pthread_mutex_lock(&lock);
    if (after > 0) {
        after--;
    } else if (times > 0) {
        times--;
        now = true;
        if (times == 0)
            fprintf(stderr, "faulty provider: the last fault of kind %s\n", kind);
    }
    pthread_mutex_unlock(&lock);
    return now;
}

static void doom(void *context)
{
    pthread_mutex_lock(&lock);
    if (doomed_count < HELD)
        doomed[doomed_count++] = context;
    pthread_mutex_unlock(&lock);
}

static bool is_doomed(const void *context)
{
    for (unsigned i = 0; i < doomed_count; i++) {
        if (doomed[i] == context) {
            doomed[i] = doomed[--doomed_count];
            return true;
        }
    }
    return false;
}

/* What a call gives at once: 0 for the provider below to answer. */
static ssize_t at_once(const char *refused, const char *again, size_t size)
{
    if (strikes(refused, size))
        return -code;
    return strikes(again, size) ? -FI_EAGAIN : 0;
}

/* The operation was posted below: its completion may be doomed. */
static ssize_t posted(ssize_t result, const char *which, size_t size, void *context)
{
    if (result == 0 && strikes(which, size))
        doom(context);
    return result;
}

static size_t size_of(const struct iovec *iov, size_t count)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += iov[i].iov_len;
    return size;
}

static ssize_t do_recv(struct fid_ep *ep, void *to, size_t size, void *desc, fi_addr_t from, uint64_t tag,
                       uint64_t ignore, void *context)
{
    ssize_t result = at_once("recv-refused", "recv-again", size);
    if (result != 0)
        return result;
    return posted(tagged.recv(ep, to, size, desc, from, tag, ignore, context), "recv-error", size, context);
}

/* Of the pieces only the first is the receive's own: hawser puts a catch-all behind it. */
static ssize_t do_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from,
                        uint64_t tag, uint64_t ignore, void *context)
{
    size_t size = count > 1 ? iov[0].iov_len : 0;
    ssize_t result = at_once("recv-refused", "recv-again", size);
    if (result != 0)
        return result;
    return posted(tagged.recvv(ep, iov, desc, count, from, tag, ignore, context), "recv-error", size, context);
}

static ssize_t do_listen(struct fid_ep *ep, void *to, size_t size, void *desc, fi_addr_t from, void *context)
{
    return strikes("listen-refused", size) ? -code : untagged.recv(ep, to, size, desc, from, context);
}

static ssize_t do_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
    if (flags & FI_PEEK) {
        if (strikes("peek-refused", 0))
            return -code;
        /* What is claimed would be lost. */
        if (flags & FI_CLAIM)
            return tagged.recvmsg(ep, msg, flags);
        return posted(tagged.recvmsg(ep, msg, flags), "peek-error", 0, msg->context);
    }
    size_t size = size_of(msg->msg_iov, msg->iov_count);
    ssize_t result = at_once("recv-refused", "recv-again", size);
    if (result == 0 && flags & FI_CLAIM)
        result = at_once("take-refused", "take-again", size);
    if (result != 0)
        return result;
    result = posted(tagged.recvmsg(ep, msg, flags), "recv-error", size, msg->context);
    return flags & FI_CLAIM ? posted(result, "take-error", size, msg->context) : result;
}

static ssize_t do_send(struct fid_ep *ep, const void *from, size_t size, void *desc, fi_addr_t to,
                       uint64_t tag, void *context)
{
    ssize_t result = at_once("send-refused", "send-again", size);
    if (result != 0)
        return result;
    return posted(tagged.send(ep, from, size, desc, to, tag, context), "send-error", size, context);
}

static ssize_t do_senddata(struct fid_ep *ep, const void *from, size_t size, void *desc, uint64_t data,
                           fi_addr_t to, uint64_t tag, void *context)
{
    ssize_t result = at_once("send-refused", "send-again", size);
    if (result != 0)
        return result;
    return posted(tagged.senddata(ep, from, size, desc, data, to, tag, context), "send-error", size, context);
}

static ssize_t do_inject(struct fid_ep *ep, const void *from, size_t size, fi_addr_t to, uint64_t tag)
{
    ssize_t result = at_once("send-refused", "send-again", size);
    return result != 0 ? result : tagged.inject(ep, from, size, to, tag);
}

static ssize_t do_injectdata(struct fid_ep *ep, const void *from, size_t size, uint64_t data, fi_addr_t to,
                             uint64_t tag)
{
    ssize_t result = at_once("send-refused", "send-again", size);
    return result != 0 ? result : tagged.injectdata(ep, from, size, data, to, tag);
}

static ssize_t hand_out(struct fi_cq_tagged_entry *entries, size_t count)
{
    size_t given = 0;
    while (given < count && held_count > 0) {
        if (is_doomed(held[held_first].op_context)) {
            if (given > 0) {
                /* The error comes with the next call. */
                doomed[doomed_count++] = held[held_first].op_context;
                return (ssize_t)given;
            }
            failed = held[held_first++];
            held_count--;
            is_failed = true;
            return -FI_EAVAIL;
        }
        entries[given++] = held[held_first++];
        held_count--;
    }
    return (ssize_t)given;
}

static ssize_t do_read(struct fid_cq *cq, void *room, size_t count)
{
    ssize_t found;
    if (strikes("queue", 0))
        return -code;
    bool overruns = strikes("overrun", 0);
    pthread_mutex_lock(&lock);
    is_overrun |= overruns;
    if (is_failed || is_overrun) {
        pthread_mutex_unlock(&lock);
        return -FI_EAVAIL;
    }
    if (held_count == 0) {
        pthread_mutex_unlock(&lock);
        found = cq_ops.read(cq, room, count < HELD ? count : HELD);
        if (found <= 0)
            return found;
        pthread_mutex_lock(&lock);
        memcpy(held, room, (size_t)found * sizeof held[0]);
        held_first = 0;
        held_count = (size_t)found;
    }
    found = hand_out(room, count);
    pthread_mutex_unlock(&lock);
    return found;
}

static ssize_t do_readerr(struct fid_cq *cq, struct fi_cq_err_entry *room, uint64_t flags)
{
    bool ours;
    pthread_mutex_lock(&lock);
    if (is_overrun) {
        is_overrun = false;
        pthread_mutex_unlock(&lock);
        memset(room, 0, offsetof(struct fi_cq_err_entry, err_data));
        room->err = room->prov_errno = FI_EOVERRUN;
        return 1;
    }
    ours = is_failed;
    is_failed = false;
    pthread_mutex_unlock(&lock);
    if (!ours) {
        ssize_t found = cq_ops.readerr(cq, room, flags);
        pthread_mutex_lock(&lock);
        if (found == 1 && is_doomed(room->op_context))
            room->err = code;
        pthread_mutex_unlock(&lock);
        return found;
    }
    room->op_context = failed.op_context;
    room->flags = failed.flags;
    room->len = failed.len;
    room->buf = failed.buf;
    room->data = failed.data;
    room->tag = failed.tag;
    room->olen = 0;
    room->err = code;
    room->prov_errno = -code;
    return 1;
}

static struct fi_info *below(const struct fi_info *info)
{
    struct fi_info *copy = fi_dupinfo(info);
    if (copy != NULL && copy->fabric_attr != NULL) {
        free(copy->fabric_attr->prov_name);
        copy->fabric_attr->prov_name = strdup(under);
    }
    return copy;
}

static int do_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
    static struct fi_ops_tagged ours;
    static struct fi_ops_msg ours_untagged;
    struct fi_info *copy = below(info);
    int result = copy == NULL ? -FI_ENOMEM : domain_ops.endpoint(domain, copy, ep, context);
    fi_freeinfo(copy);
    /* `net` opens its connections in the same domain: they are no endpoints of the host's. */
    if (result != 0 || info->ep_attr == NULL || info->ep_attr->type != FI_EP_RDM)
        return result;
    ours = tagged = *(*ep)->tagged;
    ours.recv = do_recv;
    ours.recvv = do_recvv;
    ours.recvmsg = do_recvmsg;
    ours.send = do_send;
    ours.senddata = do_senddata;
    ours.inject = do_inject;
    ours.injectdata = do_injectdata;
    (*ep)->tagged = &ours;
    ours_untagged = untagged = *(*ep)->msg;
    ours_untagged.recv = do_listen;
    (*ep)->msg = &ours_untagged;
    return 0;
}

static int do_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
    static struct fi_ops_cq ours;
    int result = domain_ops.cq_open(domain, attr, cq, context);
    /* The layers below open queues of their own by their own tables. */
    if (result != 0 || attr->format != FI_CQ_FORMAT_TAGGED)
        return result;
    ours = cq_ops = *(*cq)->ops;
    ours.read = do_read;
    ours.readerr = do_readerr;
    (*cq)->ops = &ours;
    return 0;
}

static int do_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                     void *context)
{
    static struct fi_ops_domain ours;
    struct fi_info *copy = below(info);
    int result = copy == NULL ? -FI_ENOMEM : fabric_ops.domain(fabric, copy, domain, context);
    fi_freeinfo(copy);
    if (result != 0)
        return result;
    ours = domain_ops = *(*domain)->ops;
    ours.endpoint = do_endpoint;
    ours.cq_open = do_cq_open;
    (*domain)->ops = &ours;
    return 0;
}

static int do_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    static struct fi_ops_fabric ours;
    struct fi_fabric_attr copy = *attr;
    char name[NAME_SIZE];
    int result;
    snprintf(name, sizeof name, "%s", under);
    copy.prov_name = name;
    result = fi_fabric(&copy, fabric, context);
    if (result != 0)
        return result;
    ours = fabric_ops = *(*fabric)->ops;
    ours.domain = do_domain;
    (*fabric)->ops = &ours;
    return 0;
}

static int do_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **list)
{
    static __thread bool inside;
    struct fi_info *wishes;
    int result;
    /* libfabric asks every provider, this one too, when it is asked for the one below. And a layer of its own
     * would put itself between us and the host, over connected endpoints, which have no faults. */
    if (inside || hints == NULL || (hints->ep_attr != NULL && hints->ep_attr->type == FI_EP_MSG))
        return -FI_ENODATA;
    wishes = below(hints);
    if (wishes == NULL)
        return -FI_ENOMEM;
    if (wishes->fabric_attr == NULL)
        wishes->fabric_attr = calloc(1, sizeof *wishes->fabric_attr);
    if (wishes->fabric_attr != NULL && wishes->fabric_attr->prov_name == NULL)
        wishes->fabric_attr->prov_name = strdup(under);
    inside = true;
    result = fi_getinfo(version, node, service, flags, wishes, list);
    inside = false;
    fi_freeinfo(wishes);
    if (result != 0)
        return result;
    /* libfabric puts ours behind what is there. A layered one would take `faulty` for its own layer. */
    for (struct fi_info *info = *list; strchr(under, ';') != NULL && info != NULL; info = info->next) {
        free(info->fabric_attr->prov_name);
        info->fabric_attr->prov_name = NULL;
    }
    return 0;
}

static void do_cleanup(void) {}

static struct fi_provider provider = {
    .version = FI_VERSION(1, 0),
    .fi_version = FI_VERSION(2, 6),
    .name = "faulty",
    .getinfo = do_getinfo,
    .fabric = do_fabric,
    .cleanup = do_cleanup,
};

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void)
{
    set_up();
    return &provider;
}
