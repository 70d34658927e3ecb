/* The objects of the provider gni, one subject a run: each opens, does what its manual page says, refuses what that
 * forbids, and closes. */

#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>

#include "check.h"

static void fabrics(void)
{
    struct fid_domain *more[16];
    for (int i = 0; i < 16; i++)
        NEED(fi_domain(fabric, info, &more[i], NULL));
    IS(fi_close(&fabric->fid), -FI_EBUSY);
    for (int i = 0; i < 16; i++)
        IS(fi_close(&more[i]->fid), 0);
    struct fid_eq *eq = an_eq(0, 0, FI_WAIT_NONE);
    IS(fi_close(&fabric->fid), -FI_EBUSY);
    IS(fi_close(&eq->fid), 0);
    struct fid_av *av = an_av(FI_AV_UNSPEC, 0);
    IS(fi_close(&domain->fid), -FI_EBUSY);
    IS(fi_close(&av->fid), 0);

    struct fid_pep *pep;
    /* The info is of reliable datagrams. */
    IS(fi_passive_ep(fabric, info, &pep, NULL), -FI_EINVAL);
    IS(fabric->ops->passive_ep(fabric, NULL, &pep, NULL), -FI_EINVAL);
    struct fid_ep *ep;
    NEED(fi_scalable_ep(domain, info, &ep, NULL));
    IS(fi_close(&domain->fid), -FI_EBUSY);
    IS(fi_close(&ep->fid), 0);
    struct fi_atomic_attr atomic;
    IS(fi_query_atomic(domain, FI_UINT64, FI_SUM, &atomic, 0), 0);
    IS(atomic.size, 8);
    IS(fi_domain_bind(domain, &eq->fid, 0), -FI_ENOSYS);
    IS(fabric->ops->domain(fabric, NULL, &more[0], NULL), -FI_EINVAL);
    IS(fabric->ops->domain(fabric, info, NULL, NULL), -FI_EINVAL);
    IS(fabric->ops->eq_open(fabric, NULL, &eq, NULL), -FI_EINVAL);
    /* An object of another class. */
    IS(fabric->ops->eq_open((struct fid_fabric *) domain, &(struct fi_eq_attr){.size = 1}, &eq, NULL), -FI_EINVAL);
    IS(fabric->fid.ops->close(&domain->fid), -FI_EINVAL);
    IS(fabric->fid.ops->close(NULL), -FI_EINVAL);
    struct fi_fabric_attr other = *info->fabric_attr;
    struct fid_fabric *none;
    other.name = "elsewhere";
    HOLDS(fi_fabric(&other, &none, NULL) != 0);
}

static void events(void)
{
    struct fi_eq_entry entry = {.fid = &domain->fid}, read;
    uint32_t event;
    for (int bits = 0; bits < 17; bits++) {
        struct fid_eq *eq = an_eq((size_t) 1 << bits, 0, FI_WAIT_UNSPEC);
        IS(fi_close(&eq->fid), 0);
    }
    struct fid_eq *eq = an_eq(4, FI_WRITE, FI_WAIT_FD);
    struct fid *fids[] = {&eq->fid};
    struct pollfd poll_fd = {.events = POLLIN};
    NEED(fi_control(&eq->fid, FI_GETWAIT, &poll_fd.fd));
    IS(fi_eq_read(eq, &event, &read, sizeof(read), 0), -FI_EAGAIN);
    IS(fi_trywait(fabric, fids, 1), 0);
    IS(poll(&poll_fd, 1, 0), 0);
    for (intptr_t i = 0; i < 4; i++) {
        entry.context = (void *) i;
        IS(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0), sizeof(entry));
    }
    IS(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0), -FI_EAGAIN);
    IS(poll(&poll_fd, 1, 0), 1);
    IS(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    IS(poll(&poll_fd, 1, 0), 1);
    struct fi_eq_err_entry failed = {0};
    IS(fi_eq_readerr(eq, &failed, 0), -FI_EAGAIN);
    IS(fi_eq_read(eq, &event, &read, sizeof(read) - 1, 0), -FI_ETOOSMALL);
    for (intptr_t i = 0; i < 8; i++) {
        event = ~0u;
        IS(fi_eq_sread(eq, &event, &read, sizeof(read), 2000, i & 1 ? 0 : FI_PEEK), sizeof(read));
        HOLDS(event == FI_NOTIFY && read.fid == &domain->fid && read.context == (void *) (i / 2));
    }
    IS(fi_eq_sread(eq, &event, &read, sizeof(read), 20, 0), -FI_EAGAIN);
    IS(fi_trywait(fabric, fids, 1), 0);
    IS(poll(&poll_fd, 1, 0), 0);
    IS(fi_eq_write(eq, FI_NOTIFY, NULL, sizeof(entry), 0), -FI_EINVAL);
    HOLDS(strlen(fi_eq_strerror(eq, FI_EINVAL, NULL, NULL, 0)) > 0);
    char text[8];
    HOLDS(fi_eq_strerror(eq, FI_EINVAL, NULL, text, sizeof(text)) == text && strlen(text) < sizeof(text));
    IS(fi_close(&eq->fid), 0);

    eq = an_eq(4, 0, FI_WAIT_NONE);
    fids[0] = &eq->fid;
    IS(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0), -FI_EINVAL);
    IS(fi_eq_sread(eq, &event, &read, sizeof(read), 0, 0), -FI_ENOSYS);
    IS(fi_control(&eq->fid, FI_GETWAIT, &poll_fd.fd), -FI_ENOSYS);
    IS(fi_trywait(fabric, fids, 1), -FI_EINVAL);
    IS(fi_close(&eq->fid), 0);
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_SET};
    IS(fi_eq_open(fabric, &attr, &eq, NULL), -FI_ENOSYS);
}

static void *signal_it(void *cq)
{
    IS(fi_cq_signal(cq), 0);
    return NULL;
}

static void queues(void)
{
    static const enum fi_wait_obj waits[] = {FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD};
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    fi_addr_t source;
    for (int format = FI_CQ_FORMAT_UNSPEC; format <= FI_CQ_FORMAT_TAGGED; format++)
        for (int i = 0; i < 3; i++)
            for (int bits = -1; bits < 17; bits += 3) {
                struct fid_cq *cq = a_cq(bits < 0 ? 0 : (size_t) 1 << bits, (enum fi_cq_format) format, waits[i]);
                IS(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
                IS(fi_cq_readfrom(cq, &entry, 1, &source), -FI_EAGAIN);
                IS(fi_cq_readerr(cq, &failed, 0), -FI_EAGAIN);
                IS(fi_cq_sread(cq, &entry, 1, NULL, 1), waits[i] == FI_WAIT_NONE ? -FI_ENOSYS : -FI_EAGAIN);
                IS(fi_cq_signal(cq), waits[i] == FI_WAIT_NONE ? -FI_ENOSYS : 0);
                if (waits[i] != FI_WAIT_NONE)
                    IS(fi_cq_sread(cq, &entry, 1, NULL, -1), -FI_ECANCELED);
                IS(fi_cq_read(cq, NULL, 0), -FI_EAGAIN);
                IS(fi_cq_read(cq, NULL, 1), -FI_EINVAL);
                IS(fi_close(&cq->fid), 0);
            }
    struct fid_cq *cq = a_cq(1, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, signal_it, cq));
    IS(fi_cq_sreadfrom(cq, &entry, 1, &source, NULL, -1), -FI_ECANCELED);
    NEED(pthread_join(thread, NULL));
    enum fi_wait_obj object = FI_WAIT_NONE;
    IS(fi_control(&cq->fid, FI_GETWAITOBJ, &object), 0);
    IS(object, FI_WAIT_UNSPEC);
    HOLDS(strlen(fi_cq_strerror(cq, FI_ETRUNC, NULL, NULL, 0)) > 0);
    IS(fi_close(&cq->fid), 0);

    struct fi_cq_attr attr = {.format = (enum fi_cq_format) 9};
    IS(fi_cq_open(domain, &attr, &cq, NULL), -FI_EINVAL);
    attr = (struct fi_cq_attr){.size = SIZE_MAX};
    IS(fi_cq_open(domain, &attr, &cq, NULL), -FI_EINVAL);
    attr = (struct fi_cq_attr){.wait_obj = FI_WAIT_MUTEX_COND};
    IS(fi_cq_open(domain, &attr, &cq, NULL), -FI_ENOSYS);
    IS(domain->ops->cq_open(domain, NULL, &cq, NULL), -FI_EINVAL);
    attr = (struct fi_cq_attr){0};
    IS(domain->ops->cq_open(domain, &attr, NULL, NULL), -FI_EINVAL);

    enum { MANY = 2000 };
    static struct fid_cq *many[MANY];
    for (int i = 0; i < MANY; i++)
        many[i] = a_cq(0, FI_CQ_FORMAT_UNSPEC, FI_WAIT_UNSPEC);
    for (int i = 0; i < MANY; i++)
        IS(fi_close(&many[i]->fid), 0);
}

static struct fid_cntr *a_counter(enum fi_wait_obj wait)
{
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = wait};
    struct fid_cntr *counter = NULL;
    NEED(fi_cntr_open(domain, &attr, &counter, NULL));
    return counter;
}

static void *count_up(void *counter)
{
    for (int i = 0; i < 1000; i++)
        IS(fi_cntr_add(counter, 1), 0);
    return NULL;
}

static void counters(void)
{
    struct fid_cntr *counter = a_counter(FI_WAIT_NONE);
    IS(fi_cntr_set(counter, 5), 0);
    IS(fi_cntr_add(counter, 3), 0);
    IS(fi_cntr_seterr(counter, 7), 0);
    IS(fi_cntr_adderr(counter, 2), 0);
    IS(fi_cntr_read(counter), 8);
    IS(fi_cntr_readerr(counter), 9);
    IS(fi_cntr_wait(counter, 1, 0), 0);
    IS(fi_close(&counter->fid), 0);

    /* Of one without a wait object, too: fabtests waits for those that it has opened with nothing said. */
    for (int wait = FI_WAIT_NONE; wait <= FI_WAIT_UNSPEC; wait++) {
        counter = a_counter((enum fi_wait_obj) wait);
        IS(fi_cntr_wait(counter, 0, -1), 0);
        IS(fi_cntr_wait(counter, 1, 10), -FI_ETIMEDOUT);
        pthread_t thread;
        NEED(pthread_create(&thread, NULL, count_up, counter));
        IS(fi_cntr_wait(counter, 1000, -1), 0);
        NEED(pthread_join(thread, NULL));
        IS(fi_close(&counter->fid), 0);
    }

    counter = a_counter(FI_WAIT_FD);
    struct pollfd poll_fd = {.events = POLLIN};
    struct fid *fids[] = {&counter->fid};
    NEED(fi_control(&counter->fid, FI_GETWAIT, &poll_fd.fd));
    IS(fi_trywait(fabric, fids, 1), 0);
    IS(poll(&poll_fd, 1, 0), 0);
    IS(fi_cntr_adderr(counter, 1), 0);
    IS(poll(&poll_fd, 1, 0), 1);
    /* What is counted between reading and asking whether to sleep would wake nobody afterwards. */
    IS(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    IS(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    IS(fi_cntr_readerr(counter), 1);
    IS(fi_trywait(fabric, fids, 1), 0);
    IS(fi_cntr_add(counter, 1), 0);
    IS(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    IS(poll(&poll_fd, 1, 0), 1);
    IS(fi_cntr_read(counter), 1);
    IS(fi_trywait(fabric, fids, 1), 0);
    IS(poll(&poll_fd, 1, 0), 0);
    IS(fi_close(&counter->fid), 0);

    /* Who waits by a call, or reads the one value only, knows what has changed by that. */
    counter = a_counter(FI_WAIT_FD);
    fids[0] = &counter->fid;
    IS(fi_cntr_add(counter, 1), 0);
    IS(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    IS(fi_cntr_wait(counter, 2, 0), -FI_ETIMEDOUT);
    IS(fi_trywait(fabric, fids, 1), 0);
    IS(fi_cntr_adderr(counter, 1), 0);
    IS(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    IS(fi_cntr_read(counter), 1);
    IS(fi_trywait(fabric, fids, 1), 0);
    IS(fi_close(&counter->fid), 0);
    struct fi_cntr_attr attr = {.flags = 1};
    IS(fi_cntr_open(domain, &attr, &counter, NULL), -FI_EINVAL);
    IS(domain->ops->cntr_open(domain, NULL, &counter, NULL), -FI_EINVAL);
}

/* Which of several have something new. */
static void polls(void)
{
    struct fi_poll_attr attr = {0};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT};
    struct fi_cntr_attr counter_attr = {0};
    struct fid_poll *set = NULL;
    struct fid_cq *cq = NULL;
    struct fid_cntr *counters[2] = {NULL};
    struct fid_av *av = an_av(FI_AV_MAP, 0);
    struct fid_ep *ep = NULL;
    void *found[4];
    int of_queue, of_counters[2];
    char name[48], byte = 0;
    size_t length = sizeof(name);
    fi_addr_t own;
    NEED(fi_poll_open(domain, &attr, &set));
    NEED(fi_cq_open(domain, &cq_attr, &cq, &of_queue));
    for (int i = 0; i < 2; i++)
        NEED(fi_cntr_open(domain, &counter_attr, &counters[i], &of_counters[i]));
    IS(fi_poll(set, found, 4), 0);
    IS(fi_poll_add(set, &cq->fid, 0), 0);
    IS(fi_poll_add(set, &cq->fid, 0), 0);
    for (int i = 0; i < 2; i++)
        IS(fi_poll_add(set, &counters[i]->fid, 0), 0);
    IS(fi_poll_add(set, &av->fid, 0), -FI_EINVAL);
    IS(fi_poll_add(set, &cq->fid, 1), -FI_EINVAL);
    IS(fi_close(&cq->fid), -FI_EBUSY);
    IS(fi_close(&counters[0]->fid), -FI_EBUSY);
    IS(fi_close(&domain->fid), -FI_EBUSY);
    IS(fi_poll(set, found, 4), 0);

    /* A counter once for each change, whichever of its values that is of. */
    IS(fi_cntr_add(counters[1], 1), 0);
    IS(fi_poll(set, found, 4), 1);
    HOLDS(found[0] == &of_counters[1]);
    IS(fi_poll(set, found, 4), 0);
    IS(fi_cntr_adderr(counters[0], 1), 0);
    IS(fi_cntr_set(counters[1], 9), 0);
    IS(fi_poll(set, found, 0), 0);
    IS(fi_poll(set, found, 1), 1);
    HOLDS(found[0] == &of_counters[0] || found[0] == &of_counters[1]);
    void *first = found[0];
    IS(fi_poll(set, found, 1), 1);
    HOLDS((found[0] == &of_counters[0] || found[0] == &of_counters[1]) && found[0] != first);

    /* A queue as long as it has entries; what comes, comes by the call. */
    NEED(fi_endpoint(domain, info, &ep, NULL));
    NEED(fi_ep_bind(ep, &av->fid, 0));
    NEED(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    NEED(fi_enable(ep));
    NEED(fi_getname(&ep->fid, name, &length));
    IS(fi_av_insert(av, name, 1, &own, 0, NULL), 1);
    IS(fi_recv(ep, &byte, 1, NULL, FI_ADDR_UNSPEC, &byte), 0);
    IS(fi_send(ep, &byte, 1, NULL, own, &length), 0);
    int is_received = 0;
    while (!is_received) {
        struct fi_cq_entry entry;
        int count;
        while ((count = fi_poll(set, found, 4)) == 0)
            ;
        IS(count, 1);
        HOLDS(found[0] == &of_queue);
        IS(fi_poll(set, found, 4), 1);
        /* Where there is room for one, all have their turn. */
        IS(fi_cntr_add(counters[1], 1), 0);
        IS(fi_poll(set, &found[0], 1), 1);
        IS(fi_poll(set, &found[1], 1), 1);
        HOLDS(found[0] != found[1]);
        while (fi_cq_read(cq, &entry, 1) == 1)
            is_received |= entry.op_context == &byte;
    }
    IS(fi_poll_del(set, &counters[0]->fid, 0), 0);
    IS(fi_poll_del(set, &counters[0]->fid, 0), -FI_ENOENT);
    IS(fi_cntr_add(counters[0], 1), 0);
    IS(fi_poll(set, found, 4), 0);
    IS(fi_poll(set, found, -1), -FI_EINVAL);
    IS(fi_poll(set, NULL, 1), -FI_EINVAL);
    IS(fi_close(&counters[0]->fid), 0);
    IS(fi_close(&set->fid), 0);
    IS(fi_close(&counters[1]->fid), 0);
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_close(&av->fid), 0);
    attr.flags = 1;
    IS(fi_poll_open(domain, &attr, &set), -FI_EINVAL);
    IS(domain->ops->poll_open(domain, NULL, &set), -FI_EINVAL);
    IS(domain->ops->poll_open(domain, &attr, NULL), -FI_EINVAL);
}

/* Sleeping until one of several has something new. */
static void waits(void)
{
    struct fi_wait_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_wait *set = NULL, *other = NULL;
    NEED(fi_wait_open(fabric, &attr, &set));
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_SET, .wait_set = set};
    struct fi_cntr_attr counter_attr = {.wait_obj = FI_WAIT_SET, .wait_set = set};
    struct fid_cq *cq = NULL;
    struct fid_cntr *counter = NULL;
    struct fid_av *av = an_av(FI_AV_MAP, 0);
    struct fid_ep *ep = NULL;
    char name[48], byte = 0;
    size_t length = sizeof(name);
    fi_addr_t own;
    IS(fi_wait(set, 0), -FI_ETIMEDOUT);
    NEED(fi_cq_open(domain, &cq_attr, &cq, NULL));
    NEED(fi_cntr_open(domain, &counter_attr, &counter, NULL));
    IS(fi_close(&set->fid), -FI_EBUSY);
    IS(fi_wait(set, 10), -FI_ETIMEDOUT);
    IS(fi_cntr_add(counter, 1), 0);
    IS(fi_wait(set, -1), 0);
    IS(fi_wait(set, 0), -FI_ETIMEDOUT);
    IS(fi_cntr_adderr(counter, 1), 0);
    IS(fi_wait(set, -1), 0);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, count_up, counter));
    while (fi_cntr_read(counter) < 1001)
        IS(fi_wait(set, -1), 0);
    NEED(pthread_join(thread, NULL));

    NEED(fi_endpoint(domain, info, &ep, NULL));
    NEED(fi_ep_bind(ep, &av->fid, 0));
    NEED(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    NEED(fi_enable(ep));
    NEED(fi_getname(&ep->fid, name, &length));
    IS(fi_av_insert(av, name, 1, &own, 0, NULL), 1);
    for (int i = 0; i < 50; i++) {
        int is_received = 0;
        IS(fi_recv(ep, &byte, 1, NULL, FI_ADDR_UNSPEC, &byte), 0);
        IS(fi_send(ep, &byte, 1, NULL, own, &length), 0);
        while (!is_received) {
            struct fi_cq_entry entry;
            IS(fi_wait(set, -1), 0);
            while (fi_cq_read(cq, &entry, 1) == 1)
                is_received |= entry.op_context == &byte;
        }
    }
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&av->fid), 0);
    IS(fi_close(&cq->fid), 0);
    /* Of what is closed nobody hears any more; the others go on. */
    IS(fi_cntr_add(counter, 1), 0);
    IS(fi_wait(set, -1), 0);
    enum fi_wait_obj object;
    int none;
    NEED(fi_control(&set->fid, FI_GETWAITOBJ, &object));
    IS(object, FI_WAIT_UNSPEC);
    IS(fi_control(&set->fid, FI_GETWAIT, &none), -FI_ENOSYS);
    IS(fi_close(&counter->fid), 0);
    IS(fi_close(&set->fid), 0);

    /* By a descriptor of the program's. */
    attr.wait_obj = FI_WAIT_FD;
    NEED(fi_wait_open(fabric, &attr, &set));
    counter_attr.wait_set = set;
    NEED(fi_cntr_open(domain, &counter_attr, &counter, NULL));
    struct pollfd fd = {.events = POLLIN};
    struct fid *fids[] = {&set->fid};
    NEED(fi_control(&set->fid, FI_GETWAIT, &fd.fd));
    IS(fi_trywait(fabric, fids, 1), 0);
    IS(poll(&fd, 1, 0), 0);
    IS(fi_cntr_add(counter, 1), 0);
    IS(poll(&fd, 1, 0), 1);
    IS(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    IS(fi_trywait(fabric, fids, 1), 0);
    IS(poll(&fd, 1, 0), 0);
    IS(fi_close(&counter->fid), 0);
    IS(fi_close(&set->fid), 0);

    /* What there is not. */
    counter_attr.wait_set = NULL;
    IS(fi_cntr_open(domain, &counter_attr, &counter, NULL), -FI_EINVAL);
    attr.wait_obj = FI_WAIT_MUTEX_COND;
    IS(fi_wait_open(fabric, &attr, &other), -FI_ENOSYS);
    attr = (struct fi_wait_attr){.wait_obj = FI_WAIT_FD, .flags = 1};
    IS(fi_wait_open(fabric, &attr, &other), -FI_EINVAL);
    IS(fabric->ops->wait_open(fabric, NULL, &other), -FI_EINVAL);
}

/* A name of the provider's: device, cdm id, bound to a service. */
static void name_of(uint8_t name[48], uint8_t last, uint8_t service)
{
    const uint8_t bytes[] = {last, 2, 0, 192, service, 0, 0, 0, 2, service};
    memset(name, 0, 48);
    memcpy(name, bytes, sizeof(bytes));
}

static void addresses(void)
{
    uint8_t names[3][48], read[64];
    fi_addr_t number[3];
    int errors[3];
    for (int type = FI_AV_MAP; type <= FI_AV_TABLE; type++) {
        struct fid_av *av = an_av((enum fi_av_type) type, 0);
        for (uint8_t i = 0; i < 3; i++)
            name_of(names[i], 7, i + 1);
        memset(names[1], 0, 48);
        IS(fi_av_insert(av, names, 3, number, 0, NULL), 2);
        HOLDS(number[0] != FI_ADDR_NOTAVAIL && number[1] == FI_ADDR_NOTAVAIL && number[2] != FI_ADDR_NOTAVAIL);
        IS(fi_av_insert(av, names, 3, NULL, FI_SYNC_ERR, errors), 2);
        HOLDS(errors[0] == 0 && errors[1] == FI_EINVAL && errors[2] == 0);
        if (type == FI_AV_TABLE)
            HOLDS(number[0] == 0 && number[2] == 1);
        size_t length = sizeof(read);
        IS(fi_av_lookup(av, number[2], read, &length), 0);
        HOLDS(length == 48 && memcmp(read, names[2], 48) == 0);
        length = 5;
        memset(read, 0xEE, sizeof(read));
        IS(fi_av_lookup(av, number[0], read, &length), 0);
        HOLDS(length == 48 && memcmp(read, names[0], 5) == 0 && read[5] == 0xEE);
        length = 0;
        IS(fi_av_lookup(av, number[0], NULL, &length), 0);
        IS(length, 48);
        IS(fi_av_lookup(av, 77, read, &length), -FI_EINVAL);
        IS(fi_av_lookup(av, FI_ADDR_NOTAVAIL, read, &length), -FI_EINVAL);

        char text[128];
        length = sizeof(text);
        HOLDS(fi_av_straddr(av, names[0], text, &length) == text);
        HOLDS(strncmp(text, "gni;192.0.2.7;0x00000001;2;", 27) == 0 && length == strlen(text) + 1);
        size_t whole = length;
        length = 6;
        HOLDS(fi_av_straddr(av, names[0], text, &length) == text && length == whole && strcmp(text, "gni;1") == 0);

        IS(fi_av_remove(av, number, 1, 0), 0);
        IS(fi_av_lookup(av, number[0], read, &length), -FI_EINVAL);
        IS(fi_av_remove(av, number, 1, 0), -FI_EINVAL);
        IS(fi_av_insert(av, names, 1, number + 1, 0, NULL), 1);
        HOLDS((number[1] == number[0]) == (type == FI_AV_TABLE));

        IS(fi_av_insertsvc(av, "192.0.2.7", "9", number, 0, NULL), 1);
        IS(fi_av_insertsvc(av, "no-such-node.invalid", "9", number, 0, NULL), 0);
        IS(number[0], FI_ADDR_NOTAVAIL);
        fi_addr_t four[4];
        IS(fi_av_insertsym(av, "192.0.2.7", 2, "9", 2, four, 0, NULL), 4);
        IS(fi_av_lookup(av, four[2], read, (length = sizeof(read), &length)), 0);
        HOLDS(read[0] == 8 && read[4] == 9);
        IS(fi_av_insert(av, NULL, 1, number, 0, NULL), -FI_EINVAL);
        IS(fi_av_insert(av, names, 1, number, FI_EVENT, NULL), -FI_EINVAL);
        IS(fi_close(&av->fid), 0);
    }
    struct fi_av_attr attr = {.type = FI_AV_UNSPEC};
    struct fid_av *av;
    NEED(fi_av_open(domain, &attr, &av, NULL));
    IS(attr.type, FI_AV_TABLE);
    IS(fi_close(&av->fid), 0);
    attr = (struct fi_av_attr){.rx_ctx_bits = 9};
    IS(fi_av_open(domain, &attr, &av, NULL), -FI_EINVAL);
    IS(domain->ops->av_open(domain, NULL, &av, NULL), -FI_EINVAL);

    /* Told by an event queue. */
    av = an_av(FI_AV_TABLE, FI_EVENT);
    HOLDS(fi_av_insert(av, names, 3, number, 0, NULL) < 0);
    struct fid_eq *eq = an_eq(0, 0, FI_WAIT_UNSPEC);
    NEED(fi_av_bind(av, &eq->fid, 0));
    IS(fi_av_bind(av, &eq->fid, 0), -FI_EINVAL);
    IS(fi_close(&eq->fid), -FI_EBUSY);
    IS(fi_av_insert(av, names, 3, number, 0, &number), 0);
    struct fi_eq_err_entry failed = {0};
    struct fi_eq_entry done = {0};
    uint32_t event;
    IS(fi_eq_sread(eq, &event, &done, sizeof(done), 1000, 0), -FI_EAVAIL);
    IS(fi_eq_readerr(eq, &failed, 0), sizeof(failed));
    HOLDS(failed.fid == &av->fid && failed.context == &number && failed.data == 1 && failed.err == FI_EINVAL);
    IS(fi_eq_sread(eq, &event, &done, sizeof(done), 1000, 0), sizeof(done));
    HOLDS(event == FI_AV_COMPLETE && done.fid == &av->fid && done.context == &number && done.data == 2);
    IS(fi_close(&av->fid), 0);
    IS(fi_close(&eq->fid), 0);
}

static void memory(void)
{
    static char buffer[4096];
    uint64_t all = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    struct fid_mr *mr, *other;
    int is_ours = info->domain_attr->mr_mode == MR_BASIC;
    /* Every set of rights. */
    uint64_t access = 0;
    do {
        NEED(fi_mr_reg(domain, buffer, sizeof(buffer), access, 0, 0xC0DE, 0, &mr, NULL));
        IS(fi_close(&mr->fid), 0);
        access = (access - all) & all;
    } while (access != 0);
    NEED(fi_mr_reg(domain, buffer, 1, all, 0, 0xC0DE, 0, &mr, NULL));
    HOLDS(is_ours || fi_mr_key(mr) == 0xC0DE);
    HOLDS(fi_mr_key(mr) != FI_KEY_NOTAVAIL && fi_mr_desc(mr) == NULL);
    IS(fi_mr_reg(domain, buffer, 1, all, 0, 0xC0DE, 0, &other, NULL), is_ours ? 0 : -FI_ENOKEY);
    if (is_ours) {
        HOLDS(fi_mr_key(mr) != fi_mr_key(other));
        IS(fi_close(&other->fid), 0);
    }
    IS(fi_close(&domain->fid), -FI_EBUSY);
    struct fid_cntr *counter = a_counter(FI_WAIT_NONE);
    IS(fi_mr_bind(mr, &counter->fid, FI_REMOTE_WRITE), 0);
    IS(fi_mr_bind(mr, &domain->fid, 0), -FI_ENOSYS);
    IS(fi_close(&counter->fid), -FI_EBUSY);
    IS(fi_close(&mr->fid), 0);
    IS(fi_close(&counter->fid), 0);

    struct iovec pieces[2] = {{buffer, 10}, {buffer + 10, 10}};
    NEED(fi_mr_regv(domain, pieces, 1, all, 0, 1, 0, &mr, NULL));
    IS(fi_close(&mr->fid), 0);
    IS(fi_mr_regv(domain, pieces, 2, all, 0, 1, 0, &mr, NULL), -FI_EINVAL);
    IS(fi_mr_regv(domain, NULL, 1, all, 0, 1, 0, &mr, NULL), -FI_EINVAL);
    struct fi_mr_attr attr = {.mr_iov = pieces, .iov_count = 1, .access = all, .requested_key = 2, .context = &attr};
    NEED(fi_mr_regattr(domain, &attr, 0, &mr));
    HOLDS(mr->fid.context == &attr);
    IS(fi_close(&mr->fid), 0);
    attr.iface = FI_HMEM_CUDA;
    IS(fi_mr_regattr(domain, &attr, 0, &mr), -FI_ENOSYS);
    NEED(fi_mr_reg(domain, NULL, SIZE_MAX, all, 0, 3, 0, &mr, NULL));
    IS(fi_close(&mr->fid), 0);
    IS(fi_mr_reg(domain, buffer, SIZE_MAX, all, 0, 3, 0, &mr, NULL), -FI_EINVAL);
    IS(fi_mr_reg(domain, buffer, 1, all, 1, 3, 0, &mr, NULL), -FI_EINVAL);
    IS(fi_mr_reg(domain, buffer, 1, 1ull << 60, 0, 3, 0, &mr, NULL), -FI_EINVAL);
    IS(domain->mr->regattr(&domain->fid, NULL, 0, &mr), -FI_EINVAL);
    IS(domain->mr->reg(&domain->fid, buffer, 1, all, 0, 3, 0, NULL, NULL), -FI_EINVAL);
}

static void endpoints(void)
{
    struct fid_ep *ep, *second;
    NEED(fi_endpoint(domain, info, &ep, NULL));
    NEED(fi_endpoint(domain, info, &second, NULL));
    uint8_t name[64], other[64];
    size_t length = 0;
    IS(fi_getname(&ep->fid, NULL, &length), -FI_ETOOSMALL);
    IS(length, 48);
    length = 47;
    IS(fi_getname(&ep->fid, name, &length), -FI_ETOOSMALL);
    length = sizeof(name);
    IS(fi_getname(&ep->fid, name, &length), 0);
    IS(length, 48);
    IS(fi_getname(&second->fid, other, &length), 0);
    HOLDS(memcmp(name, other, 48) != 0);
    name_of(name, 7, 9);
    IS(fi_setname(&second->fid, name, 48), -FI_EADDRNOTAVAIL);
    memcpy(name, other, 4);
    IS(fi_setname(&second->fid, name, 48), 0);
    IS(fi_getname(&second->fid, other, &length), 0);
    HOLDS(memcmp(name, other, 12) == 0);
    IS(fi_setname(&second->fid, name, 47), -FI_EINVAL);
    IS(fi_close(&second->fid), 0);

    size_t least = 0;
    length = sizeof(least);
    IS(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &length), 0);
    HOLDS(least > 0 && length == sizeof(least));
    least = 12345;
    IS(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
    least = 0;
    IS(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &length), 0);
    IS(least, 12345);
    length = 3;
    IS(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &length), -FI_ETOOSMALL);
    IS(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, 3), -FI_EINVAL);
    IS(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, 1000, &least, sizeof(least)), -FI_ENOPROTOOPT);

    struct fid_av *av = an_av(FI_AV_TABLE, 0);
    struct fid_cq *cq = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE);
    struct fid_eq *eq = an_eq(0, 0, FI_WAIT_NONE);
    struct fid_cntr *counter = a_counter(FI_WAIT_NONE);
    struct fid_mr *mr;
    NEED(fi_mr_reg(domain, name, 1, FI_REMOTE_READ, 0, 1, 0, &mr, NULL));
    IS(fi_enable(ep), -FI_ENOAV);
    IS(fi_ep_bind(ep, &av->fid, 0), 0);
    IS(fi_ep_bind(ep, &av->fid, 0), -FI_EINVAL);
    IS(fi_enable(ep), -FI_ENOCQ);
    IS(fi_ep_bind(ep, &cq->fid, 0), -FI_EBADFLAGS);
    IS(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION), 0);
    IS(fi_enable(ep), -FI_ENOCQ);
    IS(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT), -FI_EINVAL);
    IS(fi_ep_bind(ep, &counter->fid, 1), -FI_EBADFLAGS);
    IS(fi_ep_bind(ep, &counter->fid, FI_RECV | FI_WRITE), 0);
    IS(fi_ep_bind(ep, &counter->fid, FI_WRITE), -FI_EINVAL);
    IS(fi_ep_bind(ep, &eq->fid, 0), 0);
    IS(fi_ep_bind(ep, &mr->fid, 0), -FI_ENOSYS);
    struct fid_domain *elsewhere;
    struct fid_cq *far;
    struct fi_cq_attr attr = {0};
    NEED(fi_domain(fabric, info, &elsewhere, NULL));
    NEED(fi_cq_open(elsewhere, &attr, &far, NULL));
    IS(fi_ep_bind(ep, &far->fid, FI_RECV), -FI_EDOMAIN);
    IS(fi_close(&far->fid), 0);
    IS(fi_close(&elsewhere->fid), 0);
    IS(fi_enable(ep), 0);
    IS(fi_enable(ep), -FI_EOPBADSTATE);
    IS(fi_ep_bind(ep, &cq->fid, FI_RECV), -FI_EOPBADSTATE);
    IS(fi_setname(&ep->fid, name, 48), -FI_EOPBADSTATE);
    IS(fi_close(&av->fid), -FI_EBUSY);
    IS(fi_close(&cq->fid), -FI_EBUSY);
    IS(fi_close(&eq->fid), -FI_EBUSY);

    uint64_t flags = FI_TRANSMIT;
    IS(fi_control(&ep->fid, FI_GETOPSFLAG, &flags), 0);
    IS(flags, info->tx_attr->op_flags);
    flags = FI_RECV | FI_COMPLETION;
    IS(fi_control(&ep->fid, FI_SETOPSFLAG, &flags), 0);
    flags = FI_RECV;
    IS(fi_control(&ep->fid, FI_GETOPSFLAG, &flags), 0);
    IS(flags, FI_COMPLETION);
    flags = 0;
    IS(fi_control(&ep->fid, FI_GETOPSFLAG, &flags), -FI_EINVAL);
    IS(fi_control(&ep->fid, 1000, NULL), -FI_ENOSYS);
    IS(fi_cancel(&ep->fid, NULL), -FI_ENOENT);

    /* To nobody; and what is not there, which is no less in its table. */
    IS(fi_send(ep, name, 1, NULL, 0, NULL), -FI_EINVAL);
    IS(fi_injectdata(ep, name, 1, 0, 0), -FI_EINVAL);
    IS(fi_tsenddata(ep, name, 1, NULL, 0, 0, 0, NULL), -FI_EINVAL);
    IS(fi_recv(ep, name, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
    IS(fi_trecv(ep, name, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), 0);
    IS(fi_read(ep, name, 1, NULL, 0, 0, 0, NULL), -FI_EINVAL);
    IS(fi_inject_writedata(ep, name, 1, 0, 0, 0, 0), -FI_EINVAL);
    IS(fi_atomic(ep, name, 1, NULL, 0, 0, 0, FI_UINT8, FI_SUM, NULL), -FI_EINVAL);
    IS(fi_compare_atomic(ep, name, 1, NULL, name, NULL, name, NULL, 0, 0, 0, FI_UINT8, FI_CSWAP, NULL), -FI_EINVAL);
    IS(fi_atomicvalid(ep, FI_UINT8, FI_SUM, &length), 0);
    IS(fi_connect(ep, name, NULL, 0), -FI_ENOSYS);
    struct fid_ep *part;
    IS(fi_tx_context(ep, 0, NULL, &part, NULL), -FI_ENOSYS);

    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&mr->fid), 0);
    IS(fi_close(&counter->fid), 0);
    IS(fi_close(&eq->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_close(&av->fid), 0);
    IS(domain->ops->endpoint(domain, NULL, &ep, NULL), -FI_EINVAL);
    /* A type that there is not, and a handle that is none. */
    struct fi_info *changed = fi_dupinfo(info);
    changed->ep_attr->type = FI_EP_UNSPEC;
    IS(fi_endpoint(domain, changed, &ep, NULL), -FI_EINVAL);
    changed->ep_attr->type = FI_EP_MSG;
    changed->handle = &domain->fid;
    IS(fi_endpoint(domain, changed, &ep, NULL), -FI_EINVAL);
    changed->handle = NULL;
    NEED(fi_endpoint(domain, changed, &ep, NULL));
    IS(fi_close(&ep->fid), 0);
    fi_freeinfo(changed);
}

int main(int argc, char **argv)
{
    static const struct one_case all[] = {
        {"fabrics", fabrics}, {"events", events}, {"queues", queues}, {"counters", counters}, {"polls", polls},
        {"waits", waits}, {"addresses", addresses}, {"memory", memory}, {"endpoints", endpoints},
    };
    struct fi_info *hints = wish();
    /* Keys and addresses of the provider's, or the user's keys and offsets. */
    if (argc > 2 && strcmp(argv[2], "ours") == 0)
        hints->domain_attr->mr_mode = MR_BASIC;
    open_domain(API, hints);
    RUN(all, argc > 1 ? argv[1] : "");
    close_domain();
    return verdict();
}
