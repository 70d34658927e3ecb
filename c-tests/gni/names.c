/* Names that are used again, that others have, that are not of this node, and how many there are. */
#include <fcntl.h>
#include <sys/resource.h>

#include "pair.h"

/* A domain of its own, whose endpoints have this service. */
struct place {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
};

static struct fi_info *hints_of(void)
{
    struct fi_info *hints = wish();
    hints->caps = FI_MSG | FI_TAGGED;
    hints->ep_attr->type = FI_EP_RDM;
    return hints;
}

static struct place place_of(const char *service)
{
    struct place place = {0};
    struct fi_info *hints = hints_of();
    NEED(fi_getinfo(API, service ? "127.0.0.1" : NULL, service, service ? FI_SOURCE : 0, hints, &place.info));
    NEED(fi_fabric(place.info->fabric_attr, &place.fabric, NULL));
    NEED(fi_domain(place.fabric, place.info, &place.domain, NULL));
    fi_freeinfo(hints);
    return place;
}

static void leave(struct place *place)
{
    IS(fi_close(&place->domain->fid), 0);
    IS(fi_close(&place->fabric->fid), 0);
    fi_freeinfo(place->info);
}

static void open_at(struct place *place, struct end *end)
{
    memset(end, 0, sizeof(*end));
    info = place->info;
    domain = place->domain;
    open_end(end);
}

/* A service that other processes of this test have not, and the system gives to nobody who asks for any. */
static const char *a_service(int which)
{
    static char text[8];
    snprintf(text, sizeof(text), "%d", 20000 + (getpid() * 4 + which) % 12000);
    return text;
}

/* The error that a queue tells, or 0 for an entry; both ends go on meanwhile. */
static int outcome(struct fid_cq *cq, struct fid_cq *other)
{
    struct fi_cq_tagged_entry entry;
    ssize_t read;
    while ((read = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
        fi_cq_read(other, NULL, 0);
    if (read == 1)
        return 0;
    struct fi_cq_err_entry failed = {0};
    IS(fi_cq_readerr(cq, &failed, 0), 1);
    return failed.err;
}

static void send_to(struct end *from, fi_addr_t to, struct end *end)
{
    uint64_t out = 7, in = 0;
    ssize_t posted;
    IS(fi_trecv(end->ep, &in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
    while ((posted = fi_tsend(from->ep, &out, 8, NULL, to, 1, NULL)) == -FI_EAGAIN) {
        fi_cq_read(from->rx, NULL, 0);
        fi_cq_read(end->rx, NULL, 0);
    }
    IS(posted, 0);
    int code = outcome(from->tx, end->rx);
    IS(code, 0);
    if (code == 0) {
        IS(outcome(end->rx, from->tx), 0);
        IS(in, 7);
    }
}

/* The same to whoever has the name now: whether it has arrived. It is told of otherwise. */
static int arrives(struct end *from, fi_addr_t to, struct end *end)
{
    static uint64_t in;
    uint64_t out = 8;
    struct iovec piece = {&out, 8};
    struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = to, .tag = 3};
    ssize_t posted;
    in = 0;
    IS(fi_trecv(end->ep, &in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, NULL), 0);
    while ((posted = fi_tsendmsg(from->ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)) == -FI_EAGAIN) {
        fi_cq_read(from->rx, NULL, 0);
        fi_cq_read(end->rx, NULL, 0);
    }
    IS(posted, 0);
    int code = outcome(from->tx, end->rx);
    if (code == 0) {
        IS(outcome(end->rx, from->tx), 0);
        IS(in, 8);
        return 1;
    }
    IS(fi_cancel(&end->ep->fid, NULL), 0);
    IS(outcome(end->rx, from->tx), FI_ECANCELED);
    return 0;
}

/* Each life of a name is reached by an address that names none, once the end of the one before is known; the first by its own
   name only. */
static void reopened(void)
{
    char service[8], first[48], name[48];
    struct end one, two;
    fi_addr_t any, old = FI_ADDR_NOTAVAIL, exact;
    strcpy(service, a_service(0));
    struct place here_at = place_of(NULL);
    open_at(&here_at, &one);
    IS(fi_av_insertsvc(one.av, "127.0.0.1", service, &any, 0, NULL), 1);
    /* In a domain that stays: closed and opened again at once; the same with a domain each time. */
    struct place stays = place_of(service);
    for (int life = 0; life < 6; life++) {
        struct place there = life < 3 ? stays : place_of(service);
        open_at(&there, &two);
        name_of(&two, name);
        if (life == 0) {
            memcpy(first, name, 48);
            IS(fi_av_insert(one.av, first, 1, &old, 0, NULL), 1);
            send_to(&one, old, &two);
        }
        /* Of the former life, one message at most. */
        HOLDS(arrives(&one, any, &two) || arrives(&one, any, &two));
        send_to(&one, any, &two);
        IS(fi_av_insert(one.av, name, 1, &exact, 0, NULL), 1);
        send_to(&one, exact, &two);
        if (life > 0 && exact != old) {
            uint64_t out = 9;
            ssize_t posted;
            while ((posted = fi_tsend(one.ep, &out, 8, NULL, old, 2, NULL)) == -FI_EAGAIN)
                fi_cq_read(one.rx, NULL, 0);
            HOLDS(posted == -FI_ECONNREFUSED || (posted == 0 && outcome(one.tx, two.rx) != 0));
        }
        close_end(&two);
        if (life == 2)
            leave(&stays);
        if (life >= 3)
            leave(&there);
    }
    close_end(&one);
    leave(&here_at);
}

/* An endpoint that is not opened takes nothing from one that is. */
static void taken(void)
{
    struct end one, two;
    char name[48];
    fi_addr_t to;
    struct place there = place_of(a_service(1)), from = place_of(NULL);
    open_at(&there, &two);
    struct fid_ep *ep = NULL;
    IS(fi_endpoint(there.domain, there.info, &ep, NULL), -FI_EADDRINUSE);
    struct fi_info *loopback = fi_dupinfo(there.info);
    const uint8_t localhost[] = {9, 0, 0, 127};
    memcpy(loopback->src_addr, localhost, 4);
    IS(fi_endpoint(there.domain, loopback, &ep, NULL), -FI_EADDRINUSE);
    fi_freeinfo(loopback);
    open_at(&from, &one);
    name_of(&two, name);
    IS(fi_av_insert(one.av, name, 1, &to, 0, NULL), 1);
    send_to(&one, to, &two);
    close_end(&one);
    close_end(&two);
    leave(&from);
    leave(&there);
}

static void foreign(void)
{
    struct place place = place_of(a_service(2));
    struct fid_ep *ep = NULL;
    struct fi_info *far = fi_dupinfo(place.info);
    const uint8_t documentation[] = {7, 2, 0, 192};
    memcpy(far->src_addr, documentation, 4);
    IS(fi_endpoint(place.domain, far, &ep, NULL), -FI_EADDRNOTAVAIL);
    NEED(fi_endpoint(place.domain, place.info, &ep, NULL));
    IS(fi_setname(&ep->fid, far->src_addr, 48), -FI_EADDRNOTAVAIL);
    IS(fi_close(&ep->fid), 0);
    fi_freeinfo(far);
    leave(&place);
}

/* However few descriptors there were at first: when there are more, there are endpoints. */
static void descriptors(void)
{
    struct rlimit usual, few;
    NEED(getrlimit(RLIMIT_NOFILE, &usual));
    int refusals = 0, is_enough = 0;
    for (int more = 0; more < 40 && !is_enough; more++) {
        struct place place = place_of(NULL);
        struct end end;
        struct fid_ep *ep = NULL;
        int next = open("/dev/null", O_RDONLY);
        NEED(next < 0);
        close(next);
        few = (struct rlimit){next + more, usual.rlim_max};
        NEED(setrlimit(RLIMIT_NOFILE, &few));
        int code = fi_endpoint(place.domain, place.info, &ep, NULL);
        NEED(setrlimit(RLIMIT_NOFILE, &usual));
        is_enough = code == 0;
        refusals += code != 0;
        HOLDS(code == 0 || code == -FI_EMFILE);
        if (code == 0)
            IS(fi_close(&ep->fid), 0);
        open_at(&place, &end);
        if (more == 0) {
            char name[48];
            size_t size = sizeof(name);
            fi_addr_t peer = 0;
            IS(fi_getname(&end.ep->fid, name, &size), 0);
            NEED((next = open("/dev/null", O_RDONLY)) < 0);
            close(next);
            few.rlim_cur = next;
            NEED(setrlimit(RLIMIT_NOFILE, &few));
            IS(fi_av_insert(end.av, name, 1, &peer, 0, NULL), -FI_EMFILE);
            NEED(setrlimit(RLIMIT_NOFILE, &usual));
            IS(fi_av_insert(end.av, name, 1, &peer, 0, NULL), 1);
        }
        close_end(&end);
        leave(&place);
    }
    HOLDS(is_enough && refusals > 1);
}

/* As many as are promised. */
static void many(void)
{
    struct place place = place_of(NULL);
    size_t count = place.info->domain_attr->ep_cnt;
    struct rlimit limit;
    NEED(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    NEED(setrlimit(RLIMIT_NOFILE, &limit));
    HOLDS(count >= 1024 && limit.rlim_max > count + 100);
    struct fid_ep **all = calloc(count, sizeof(*all));
    size_t made = 0;
    int code = 0;
    while (made < count && (code = fi_endpoint(place.domain, place.info, &all[made], NULL)) == 0)
        made++;
    IS(code, 0);
    IS(made, count);
    while (made > 0)
        IS(fi_close(&all[--made]->fid), 0);
    free(all);
    leave(&place);
}

/* The memory of a receive for several messages is free again when that is taken back. */
static void cancelled(void)
{
    struct place place = place_of(NULL);
    struct end end;
    static char room[4096];
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    open_at(&place, &end);
    struct iovec piece = {room, sizeof(room)};
    struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = room};
    IS(fi_recvmsg(end.ep, &message, FI_MULTI_RECV), 0);
    IS(fi_cancel(&end.ep->fid, room), 0);
    IS(fi_cq_read(end.rx, &entry, 1), -FI_EAVAIL);
    IS(fi_cq_readerr(end.rx, &failed, 0), 1);
    HOLDS(failed.err == FI_ECANCELED && failed.op_context == room && (failed.flags & FI_MULTI_RECV));
    close_end(&end);
    leave(&place);
}

/* No more of a text is read than there is by its length. */
static void texts(void)
{
    const char name[] = "gni;127.0.0.1;0x00002407";
    char text[64] = {0};
    struct fi_info *hints = hints_of(), *found = NULL;
    hints->addr_format = FI_ADDR_STR;
    memcpy(text, name, sizeof(name) - 1);
    memset(text + sizeof(name) - 1, 'x', 8);
    hints->src_addr = malloc(sizeof(name) - 1);
    NEED(hints->src_addr == NULL);
    memcpy(hints->src_addr, name, sizeof(name) - 1);
    hints->src_addrlen = sizeof(name) - 1;
    IS(fi_getinfo(API, NULL, NULL, 0, hints, &found), 0);
    if (found)
        HOLDS(strncmp(found->src_addr, name, sizeof(name) - 1) == 0);
    fi_freeinfo(found);
    fi_freeinfo(hints);

    struct place place = place_of(NULL);
    struct fid_ep *ep = NULL;
    struct fi_info *told = fi_dupinfo(place.info);
    free(told->src_addr);
    told->addr_format = FI_ADDR_STR;
    told->src_addr = strdup(text);
    told->src_addrlen = sizeof(name) - 1;
    IS(fi_endpoint(place.domain, told, &ep, NULL), 0);
    if (ep)
        IS(fi_close(&ep->fid), 0);
    fi_freeinfo(told);
    leave(&place);
}

int main(int argc, char **argv)
{
    static const struct one_case all[] = {
        {"reopened", reopened}, {"taken", taken}, {"foreign", foreign}, {"descriptors", descriptors}, {"many", many},
        {"cancelled", cancelled}, {"texts", texts},
    };
    if (argc < 2)
        return 2;
    setbuf(stdout, NULL);
    caps = FI_MSG | FI_TAGGED;
    RUN(all, argv[1]);
    return verdict();
}
