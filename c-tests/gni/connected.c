/* Connected endpoints of the provider gni (FI_EP_MSG): who listens, calls, accepts and rejects; what goes with it; messages
 * and memory; how a connection ends; and all that must not be given.
 *
 *     connected NAME apart|together
 */

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* One side of a connection. */
struct side {
    struct fid_ep *ep;
    struct fid_cq *tx, *rx;
};

static struct fid_eq *eq;
static struct fid_pep *pep;
static int wire[2] = {-1, -1}, is_apart;
static enum fi_wait_obj wait_obj = FI_WAIT_UNSPEC;
/* An event has room for what goes with it. */
static struct {
    struct fi_eq_cm_entry head;
    unsigned char data[300];
} event;

static void open_all(uint64_t caps)
{
    struct fi_info *hints = wish();
    hints->ep_attr->type = FI_EP_MSG;
    hints->caps = caps;
    open_domain(API, hints);
    eq = an_eq(0, 0, wait_obj);
}

static void close_all(void)
{
    IS(fi_close(&eq->fid), 0);
    close_domain();
}

static void listen_here(void)
{
    NEED(fi_passive_ep(fabric, info, &pep, NULL));
    NEED(fi_pep_bind(pep, &eq->fid, 0));
    NEED(fi_listen(pep));
}

/* The next event, with so many bytes of data. */
static uint32_t await(size_t data)
{
    uint32_t what = ~0u;
    memset(&event, 0, sizeof(event));
    ssize_t read = fi_eq_sread(eq, &what, &event, sizeof(event.head) + data, -1, 0);
    IS(read, (ssize_t) (sizeof(event.head) + data));
    return read < 0 ? ~0u : what;
}

static struct fi_eq_err_entry await_error(void *room, size_t length)
{
    uint32_t what;
    struct fi_eq_err_entry failed = {.err_data = room, .err_data_size = length};
    IS(fi_eq_sread(eq, &what, &event, sizeof(event), -1, 0), -FI_EAVAIL);
    IS(fi_eq_readerr(eq, &failed, 0), sizeof(failed));
    return failed;
}

static void open_side(struct side *side, struct fi_info *of)
{
    side->tx = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
    side->rx = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
    NEED(fi_endpoint(domain, of, &side->ep, side));
    NEED(fi_ep_bind(side->ep, &eq->fid, 0));
    NEED(fi_ep_bind(side->ep, &side->tx->fid, FI_TRANSMIT));
    NEED(fi_ep_bind(side->ep, &side->rx->fid, FI_RECV));
}

static void close_side(struct side *side)
{
    IS(fi_close(&side->ep->fid), 0);
    IS(fi_close(&side->tx->fid), 0);
    IS(fi_close(&side->rx->fid), 0);
}

static struct fi_cq_tagged_entry next(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry = {0};
    IS(fi_cq_sread(cq, &entry, 1, NULL, -1), 1);
    return entry;
}

static void name_of_listener(char name[48])
{
    size_t length = 0;
    IS(fi_getname(&pep->fid, NULL, &length), -FI_ETOOSMALL);
    IS(length, 48);
    NEED(fi_getname(&pep->fid, name, &length));
}

/* Both sides, of this process or with a child that calls. `is_caller` is of the process that goes on with `here`. */
static struct side here, there;
static pid_t child;
static int is_caller;

static void begin(const char *where, uint64_t caps)
{
    char name[48];
    is_apart = strcmp(where, "apart") == 0;
    if (is_apart) {
        NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, wire));
        child = fork();
        NEED(child < 0);
        is_caller = child == 0;
        NEED(close(wire[!is_caller]));
    }
    open_all(caps);
    if (!is_caller) {
        listen_here();
        name_of_listener(name);
        if (is_apart)
            NEED(write(wire[0], name, 48) != 48);
    } else {
        NEED(recv(wire[1], name, 48, MSG_WAITALL) != 48);
    }
    if (is_caller || !is_apart) {
        open_side(&here, info);
        NEED(fi_connect(here.ep, name, "call", 4));
    }
    if (!is_caller) {
        struct side *side = is_apart ? &here : &there;
        IS(await(4), FI_CONNREQ);
        HOLDS(event.head.fid == &pep->fid && memcmp(event.data, "call", 4) == 0);
        struct fi_info *asked = event.head.info;
        IS(asked->ep_attr->type, FI_EP_MSG);
        IS(asked->caps & info->caps, info->caps);
        /* What libfabric itself writes into infos that were asked for. */
        HOLDS(asked->fabric_attr->prov_name && strcmp(asked->fabric_attr->prov_name, "gni") == 0);
        IS(asked->fabric_attr->api_version, API);
        IS(info->fabric_attr->api_version, API);
        IS(asked->fabric_attr->prov_version, info->fabric_attr->prov_version);
        HOLDS(asked->handle && asked->src_addrlen == 48 && asked->dest_addrlen == 48 && memcmp(asked->src_addr, name, 48) == 0);
        open_side(side, asked);
        NEED(fi_accept(side->ep, "answer", 6));
        IS(await(0), FI_CONNECTED);
        HOLDS(event.head.fid == &side->ep->fid);
        /* It is nobody's any more. */
        IS(fi_reject(pep, asked->handle, NULL, 0), -FI_EINVAL);
        fi_freeinfo(asked);
    }
    if (is_caller || !is_apart) {
        IS(await(6), FI_CONNECTED);
        HOLDS(event.head.fid == &here.ep->fid && memcmp(event.data, "answer", 6) == 0);
    }
}

/* Both have said the same by then. */
static void meet(void)
{
    char said = 'x';
    if (is_apart) {
        NEED(write(wire[is_caller], &said, 1) != 1);
        NEED(recv(wire[is_caller], &said, 1, MSG_WAITALL) != 1);
    }
}

static int end(void)
{
    if (!is_caller)
        IS(fi_close(&pep->fid), 0);
    close_all();
    if (is_caller)
        return wrong != 0;
    if (child > 0) {
        int status;
        NEED(waitpid(child, &status, 0) != child);
        IS(status, 0);
    }
    return verdict();
}

/* Messages of all lengths, both ways; who they are with is not asked. */
static void exchange(struct side *from, struct side *to)
{
    static unsigned char out[1 << 20], in[1 << 20];
    static const size_t lengths[] = {0, 1, 64, 4096, 4097, 1 << 20};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        size_t length = lengths[i];
        if (to) {
            memset(in, 0, length);
            NEED(i & 1 ? fi_trecv(to->ep, in, length, NULL, FI_ADDR_UNSPEC, 7, 0, in) : fi_recv(to->ep, in, length, NULL, FI_ADDR_UNSPEC, in));
        }
        if (from) {
            for (size_t k = 0; k < length; k++)
                out[k] = (unsigned char) (k * 7 + i);
            NEED(i & 1 ? fi_tsend(from->ep, out, length, NULL, 99, 7, out) : fi_send(from->ep, out, length, NULL, FI_ADDR_UNSPEC, out));
            if (from == to || !is_apart) {
                struct fi_cq_tagged_entry entry = next(to->rx);
                IS(entry.len, length);
            }
            HOLDS(next(from->tx).op_context == out);
        }
        if (to) {
            if (is_apart)
                IS(next(to->rx).len, length);
            for (size_t k = 0; k < length; k++)
                if (in[k] != (unsigned char) (k * 7 + i)) {
                    HOLDS(!"the bytes that were sent");
                    break;
                }
        }
    }
}

/* The connection is over on both sides, whoever says so first. */
static void part(void)
{
    if (is_apart) {
        if (is_caller)
            IS(fi_shutdown(here.ep, 0), 0);
        IS(await(0), FI_SHUTDOWN);
        HOLDS(event.head.fid == &here.ep->fid);
        IS(fi_send(here.ep, NULL, 0, NULL, 0, NULL), -FI_ENOTCONN);
        meet();
        close_side(&here);
        return;
    }
    IS(fi_shutdown(here.ep, 0), 0);
    IS(fi_send(here.ep, NULL, 0, NULL, 0, NULL), -FI_ENOTCONN);
    for (int i = 0; i < 2; i++)
        IS(await(0), FI_SHUTDOWN);
    close_side(&here);
    close_side(&there);
}

static int messages(const char *where)
{
    begin(where, FI_MSG | FI_TAGGED);
    for (int turn = 0; turn < 4; turn++)
        if (is_apart)
            exchange((turn & 1) == is_caller ? &here : NULL, (turn & 1) == is_caller ? NULL : &here);
        else
            exchange(turn & 1 ? &there : &here, turn & 1 ? &here : &there);
    meet();
    part();
    return end();
}

/* Memory of the other side. */
static int memory(const char *where)
{
    static unsigned char mine[8192], yours[8192];
    struct fid_mr *mr;
    begin(where, FI_MSG | FI_RMA | FI_ATOMIC);
    struct side *other = is_apart ? &here : &there;
    if (!is_caller) {
        memset(mine, 3, sizeof(mine));
        NEED(fi_mr_reg(domain, mine, sizeof(mine), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 77, 0, &mr, NULL));
    }
    meet();
    if (is_caller || !is_apart) {
        memset(yours, 9, sizeof(yours));
        NEED(fi_write(here.ep, yours, 5000, NULL, 1234, 0, 77, NULL));
        if (is_apart)
            next(here.tx);
        else
            while (fi_cq_read(here.tx, &(struct fi_cq_tagged_entry){0}, 1) != 1)
                fi_cq_read(there.rx, NULL, 0);
        NEED(fi_read(here.ep, yours, 8192, NULL, 1234, 0, 77, NULL));
        if (is_apart)
            next(here.tx);
        else
            while (fi_cq_read(here.tx, &(struct fi_cq_tagged_entry){0}, 1) != 1)
                fi_cq_read(there.rx, NULL, 0);
        HOLDS(yours[0] == 9 && yours[4999] == 9 && yours[5000] == 3 && yours[8191] == 3);
        NEED(fi_send(here.ep, NULL, 0, NULL, 0, NULL));
    }
    if (!is_caller) {
        NEED(fi_recv(other->ep, NULL, 0, NULL, 0, NULL));
        next(other->rx);
        HOLDS(mine[4999] == 9 && mine[5000] == 3);
    }
    meet();
    if (!is_caller)
        IS(fi_close(&mr->fid), 0);
    part();
    return end();
}

/* What is said with a refusal comes to who has called; several call, and are answered in any order. */
static int refusals(const char *where)
{
    (void) where;
    char name[48], said[300], room[4];
    struct side sides[3];
    struct fi_info *asked[3];
    open_all(FI_MSG);
    listen_here();
    name_of_listener(name);
    memset(said, 'n', sizeof(said));
    for (int i = 0; i < 3; i++) {
        open_side(&sides[i], info);
        IS(fi_connect(sides[i].ep, name, said, 257), -FI_EINVAL);
        NEED(fi_connect(sides[i].ep, name, said, (size_t) i));
        IS(fi_connect(sides[i].ep, name, said, 0), -FI_EISCONN);
        IS(await((size_t) i), FI_CONNREQ);
        asked[i] = event.head.info;
        HOLDS(memcmp(asked[i]->src_addr, name, 48) == 0);
    }
    IS(fi_reject(pep, asked[1]->handle, said, 257), -FI_EINVAL);
    NEED(fi_reject(pep, asked[1]->handle, said, 256));
    IS(fi_reject(pep, asked[1]->handle, said, 256), -FI_EINVAL);
    struct fi_eq_err_entry failed = await_error(NULL, 0);
    HOLDS(failed.fid == &sides[1].ep->fid && failed.err_data_size == 256 && memcmp(failed.err_data, said, 256) == 0);
    IS(failed.err, FI_ECONNREFUSED);
    NEED(fi_reject(pep, asked[0]->handle, "never", 5));
    failed = await_error(room, sizeof(room));
    HOLDS(failed.fid == &sides[0].ep->fid && failed.err_data == room && failed.err_data_size == 4 && memcmp(room, "neve", 4) == 0);
    /* Whoever is opened for it, and closed, does not answer either. */
    struct fid_ep *ep;
    NEED(fi_endpoint(domain, asked[2], &ep, NULL));
    struct fid_ep *again;
    IS(fi_endpoint(domain, asked[2], &again, NULL), -FI_EINVAL);
    IS(fi_close(&ep->fid), 0);
    failed = await_error(NULL, 0);
    HOLDS(failed.fid == &sides[2].ep->fid && failed.err == FI_ECONNREFUSED && failed.err_data_size == 0);
    for (int i = 0; i < 3; i++) {
        IS(fi_connect(sides[i].ep, name, NULL, 0), -FI_EISCONN);
        close_side(&sides[i]);
        fi_freeinfo(asked[i]);
    }
    IS(fi_close(&pep->fid), 0);
    /* Nobody is there any more. */
    open_side(&sides[0], info);
    NEED(fi_connect(sides[0].ep, name, NULL, 0));
    failed = await_error(NULL, 0);
    HOLDS(failed.fid == &sides[0].ep->fid && failed.err == FI_ECONNREFUSED);
    close_side(&sides[0]);
    close_all();
    return verdict();
}

/* What is told of an end that is closed is not told any more, and what nobody has read is freed. */
static int leftovers(const char *where)
{
    (void) where;
    char name[48];
    struct side side;
    open_all(FI_MSG);
    listen_here();
    name_of_listener(name);
    open_side(&side, info);
    NEED(fi_connect(side.ep, name, NULL, 0));
    IS(await(0), FI_CONNREQ);
    struct fi_info *asked = event.head.info;
    NEED(fi_reject(pep, asked->handle, NULL, 0));
    fi_freeinfo(asked);
    close_side(&side);
    uint32_t what;
    IS(fi_eq_read(eq, &what, &event, sizeof(event), 0), -FI_EAGAIN);
    /* Looked at, and never taken; the one behind it was not even looked at. */
    for (int i = 0; i < 2; i++) {
        struct side *one = i ? &there : &here;
        open_side(one, info);
        NEED(fi_connect(one->ep, name, NULL, 0));
    }
    IS(fi_eq_sread(eq, &what, &event, sizeof(event), -1, FI_PEEK), sizeof(event.head));
    IS(what, FI_CONNREQ);
    HOLDS(event.head.info->handle);
    IS(fi_close(&pep->fid), 0);
    IS(fi_eq_read(eq, &what, &event, sizeof(event), 0), -FI_EAGAIN);
    close_side(&here);
    close_side(&there);
    close_all();
    return verdict();
}

/* A process that is killed is one that has ended the connection. */
static int death(const char *where)
{
    (void) where;
    begin("apart", FI_MSG);
    if (is_caller) {
        NEED(write(wire[1], "x", 1) != 1);
        pause();
        return 1;
    }
    char said;
    NEED(recv(wire[0], &said, 1, MSG_WAITALL) != 1);
    NEED(kill(child, SIGKILL));
    int status;
    NEED(waitpid(child, &status, 0) != child);
    IS(await(0), FI_SHUTDOWN);
    HOLDS(event.head.fid == &here.ep->fid);
    IS(fi_send(here.ep, NULL, 0, NULL, 0, NULL), -FI_ENOTCONN);
    close_side(&here);
    child = 0;
    return end();
}

/* A program may sleep on the descriptor of the queue. */
static int descriptors(const char *where)
{
    (void) where;
    wait_obj = FI_WAIT_FD;
    begin("apart", FI_MSG);
    struct pollfd poll_fd = {.events = POLLIN};
    struct fid *fids[] = {&eq->fid};
    uint32_t what;
    NEED(fi_control(&eq->fid, FI_GETWAIT, &poll_fd.fd));
    if (is_caller) {
        meet();
        IS(fi_shutdown(here.ep, 0), 0);
    } else {
        IS(fi_trywait(fabric, fids, 1), 0);
        IS(poll(&poll_fd, 1, 0), 0);
        meet();
    }
    while (fi_eq_read(eq, &what, &event, sizeof(event), 0) == -FI_EAGAIN)
        if (fi_trywait(fabric, fids, 1) == 0)
            IS(poll(&poll_fd, 1, -1), 1);
    IS(what, FI_SHUTDOWN);
    meet();
    close_side(&here);
    return end();
}

/* The functions, and what they must not be given. */
static int functions(const char *where)
{
    (void) where;
    char name[48], other[48];
    size_t size, length = sizeof(size);
    open_all(FI_MSG);
    struct fid_pep *second;
    NEED(fi_passive_ep(fabric, info, &pep, NULL));
    IS(fi_listen(pep), -FI_ENOEQ);
    IS(fi_pep_bind(pep, &domain->fid, 0), -FI_EINVAL);
    IS(fi_pep_bind(pep, &eq->fid, 1), -FI_EBADFLAGS);
    NEED(fi_pep_bind(pep, &eq->fid, 0));
    IS(fi_pep_bind(pep, &eq->fid, 0), -FI_EINVAL);
    IS(fi_close(&eq->fid), -FI_EBUSY);
    NEED(fi_listen(pep));
    IS(fi_listen(pep), -FI_EOPBADSTATE);
    NEED(fi_getopt(&pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &size, &length));
    IS(size, 256);
    length = 1;
    IS(fi_getopt(&pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &size, &length), -FI_ETOOSMALL);
    IS(fi_getopt(&pep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, &length), -FI_ENOPROTOOPT);
    name_of_listener(name);
    IS(fi_setname(&pep->fid, name, 48), -FI_EOPBADSTATE);
    IS(fi_reject(pep, NULL, NULL, 0), -FI_EINVAL);
    IS(fi_reject(pep, &domain->fid, NULL, 0), -FI_EINVAL);
    NEED(fi_passive_ep(fabric, info, &second, NULL));
    length = sizeof(other);
    NEED(fi_getname(&second->fid, other, &length));
    HOLDS(memcmp(name, other, 8) != 0);
    IS(fi_setname(&second->fid, name, 48), -FI_EADDRINUSE);
    IS(fi_setname(&second->fid, name, 47), -FI_EINVAL);
    IS(fi_setname(&second->fid, NULL, 48), -FI_EINVAL);
    IS(fi_close(&second->fid), 0);

    struct side side;
    open_side(&side, info);
    NEED(fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &size, &length));
    IS(size, 256);
    IS(fi_accept(side.ep, NULL, 0), -FI_EOPBADSTATE);
    IS(fi_shutdown(side.ep, 0), -FI_ENOTCONN);
    IS(fi_shutdown(side.ep, 1), -FI_EBADFLAGS);
    length = sizeof(other);
    IS(fi_getpeer(side.ep, other, &length), -FI_ENOTCONN);
    IS(fi_connect(side.ep, NULL, NULL, 0), -FI_EINVAL);
    memset(other, 0xff, sizeof(other));
    IS(fi_connect(side.ep, other, NULL, 0), -FI_EINVAL);
    memcpy(other, name, 48);
    /* A node that is not this one. */
    other[0] = 1, other[1] = 2, other[2] = 0, other[3] = (char) 192;
    IS(fi_connect(side.ep, other, NULL, 0), -FI_EHOSTUNREACH);
    IS(fi_send(side.ep, NULL, 0, NULL, 0, NULL), -FI_ENOTCONN);
    NEED(fi_recv(side.ep, NULL, 0, NULL, 0, NULL));
    IS(fi_connect(side.ep, name, NULL, 300), -FI_EINVAL);
    NEED(fi_connect(side.ep, name, NULL, 0));
    IS(await(0), FI_CONNREQ);
    struct fi_info *asked = event.head.info;
    struct side answer;
    open_side(&answer, asked);
    NEED(fi_accept(answer.ep, NULL, 0));
    IS(fi_accept(answer.ep, NULL, 0), -FI_EOPBADSTATE);
    IS(await(0), FI_CONNECTED);
    IS(await(0), FI_CONNECTED);
    length = sizeof(other);
    NEED(fi_getpeer(answer.ep, other, &length));
    length = sizeof(name);
    NEED(fi_getname(&side.ep->fid, name, &length));
    HOLDS(memcmp(name, other, 48) == 0);
    fi_freeinfo(asked);
    struct fi_av_attr attr = {.type = FI_AV_TABLE};
    struct fid_av *av;
    NEED(fi_av_open(domain, &attr, &av, NULL));
    struct fid_ep *ep;
    NEED(fi_endpoint(domain, info, &ep, NULL));
    IS(fi_ep_bind(ep, &av->fid, 0), -FI_EINVAL);
    IS(fi_connect(ep, name, NULL, 0), -FI_ENOEQ);
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&av->fid), 0);
    close_side(&side);
    IS(await(0), FI_SHUTDOWN);
    close_side(&answer);
    IS(fi_close(&pep->fid), 0);
    close_all();
    return verdict();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const char *);
    } all[] = {{"messages", messages}, {"memory", memory}, {"refusals", refusals}, {"leftovers", leftovers},
               {"death", death}, {"descriptors", descriptors}, {"functions", functions}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (argc > 2 && strcmp(argv[1], all[i].name) == 0)
            return all[i].run(argv[2]);
    return 2;
}
