/* A stand-in for a network that reaches device memory, preloaded around a provider of libfabric
 * that cannot. It finds the bytes of accelerator.c's device where that keeps them, and is strict:
 * an operation in device memory without a registration that covers it, one after its registration's
 * end, a registration that ends before its operation, and one that is left when the domain is
 * closed, end the process. It says yes to FI_HMEM for programs that find libfabric by dlsym.
 *
 * REACHING    names of the providers that are to reach devices, separated by commas; without it
 *             FI_HMEM is asked of the real ones
 * REFUSING    every so manieth registration is refused
 * NODE_LOCAL  set: FI_REMOTE_COMM is not asked for, so that providers within a node are listed
 * ASKING      `never`: whoever asks for FI_HMEM ends the process */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t provider_sends(void);
uint64_t provider_receives(void);
uint64_t provider_live(void);

enum { NUMBER = 3 };

/* Never freed: who uses one after its end shall be caught. */
struct registration {
    struct fid_mr mr;
    struct registration *next;
    uintptr_t start;
    size_t size;
    uint64_t access;
    unsigned users;
    bool ended;
};

/* An operation that uses a registration, from its post to its completion. */
struct use {
    struct use *next;
    const void *context;
    struct registration *registration;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registration *registrations;
static struct use *uses;
static uint64_t sends, receives, attempts;

static void *(*real_dlsym)(void *, const char *);
static int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
                      struct fi_info **);
static int (*open_fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
static void (*freeinfo)(struct fi_info *);
static struct fi_info *(*dupinfo)(const struct fi_info *);

/* The real tables; a process uses one provider at a time. */
static struct fi_ops_fabric fabric_ops;
static struct fi_ops_domain domain_ops;
static struct fi_ops domain_fid_ops;
static struct fi_ops_tagged tagged;
static struct fi_ops_cq cq_ops;

static _Noreturn void fail(const char *what, const void *address, size_t size)
{
    fprintf(stderr, "stand-in provider: %s: %p, %zu bytes\n", what, address, size);
    abort();
}

/* Where the bytes are if they are on the device; else null. */
static void *reach(const void *address, size_t size)
{
    static void *(*find)(const void *, size_t);
    if (find == NULL)
        *(void **)&find = real_dlsym(RTLD_DEFAULT, "standin_reach");
    return find == NULL ? NULL : find(address, size);
}

static int end_registration(struct fid *fid)
{
    struct registration *it = (struct registration *)fid;
    pthread_mutex_lock(&lock);
    if (it->ended)
        fail("a registration ends twice", (void *)it->start, it->size);
    if (it->users != 0)
        fail("a registration ends before its operation", (void *)it->start, it->size);
    it->ended = true;
    pthread_mutex_unlock(&lock);
    return 0;
}

static struct fi_ops registration_ops = { .size = sizeof(struct fi_ops), .close = end_registration };

static int begin_registration(struct fid *domain, const struct fi_mr_attr *attr, uint64_t flags,
                              struct fid_mr **mr)
{
    const char *refusing = getenv("REFUSING");
    struct registration *made;
    (void)domain;
    if (flags != 0 || attr->iov_count != 1 || attr->offset != 0)
        fail("an odd registration", attr, attr->iov_count);
    if (attr->iface != FI_HMEM_CUDA || attr->device.reserved != NUMBER)
        fail("not the device", attr->mr_iov->iov_base, attr->device.reserved);
    if (attr->access != FI_SEND && attr->access != FI_RECV)
        fail("more rights than are needed", attr->mr_iov->iov_base, attr->access);
    if (reach(attr->mr_iov->iov_base, attr->mr_iov->iov_len) == NULL)
        fail("host memory is registered", attr->mr_iov->iov_base, attr->mr_iov->iov_len);
    pthread_mutex_lock(&lock);
    attempts++;
    if (refusing != NULL && attempts % strtoull(refusing, NULL, 10) == 0) {
        pthread_mutex_unlock(&lock);
        return -FI_EOPNOTSUPP;
    }
    for (struct registration *it = registrations; it != NULL; it = it->next) {
        if (!it->ended && it->mr.key == attr->requested_key) {
            pthread_mutex_unlock(&lock);
            return -FI_ENOKEY;
        }
    }
    made = calloc(1, sizeof *made);
    if (made == NULL)
        fail("no memory", NULL, sizeof *made);
    made->mr.fid.fclass = FI_CLASS_MR;
    made->mr.fid.ops = &registration_ops;
    made->mr.mem_desc = made;
    made->mr.key = attr->requested_key;
    made->start = (uintptr_t)attr->mr_iov->iov_base;
    made->size = attr->mr_iov->iov_len;
    made->access = attr->access;
    made->next = registrations;
    registrations = made;
    pthread_mutex_unlock(&lock);
    *mr = &made->mr;
    return 0;
}

static uint64_t count_live(void)
{
    uint64_t live = 0;
    for (struct registration *it = registrations; it != NULL; it = it->next)
        live += !it->ended;
    return live;
}

/* The memory that the real provider is given. */
static void *admit(const void *start, size_t size, void *descriptor, uint64_t access,
                   const void *context)
{
    struct registration *it = registrations;
    void *bytes = size == 0 ? NULL : reach(start, size);
    struct use *use;
    if (bytes == NULL && descriptor != NULL)
        fail("a descriptor with host memory", start, size);
    if (bytes == NULL)
        return (void *)(uintptr_t)start;
    if (descriptor == NULL)
        fail("device memory without a descriptor", start, size);
    pthread_mutex_lock(&lock);
    while (it != NULL && it != descriptor)
        it = it->next;
    if (it == NULL)
        fail("not a descriptor", start, size);
    if (it->ended)
        fail("a descriptor after its registration's end", start, size);
    if ((uintptr_t)start < it->start || (uintptr_t)start + size > it->start + it->size)
        fail("a registration that does not cover the memory", start, size);
    if (!(it->access & access))
        fail("a registration without the right", start, size);
    use = calloc(1, sizeof *use);
    if (use == NULL)
        fail("no memory", NULL, sizeof *use);
    *use = (struct use){ .next = uses, .context = context, .registration = it };
    uses = use;
    it->users++;
    *(access == FI_SEND ? &sends : &receives) += 1;
    pthread_mutex_unlock(&lock);
    return bytes;
}

static bool over(const void *context)
{
    struct use **link = &uses, *use;
    pthread_mutex_lock(&lock);
    while ((use = *link) != NULL && use->context != context)
        link = &use->next;
    if (use != NULL) {
        *link = use->next;
        use->registration->users--;
        free(use);
    }
    pthread_mutex_unlock(&lock);
    return use != NULL;
}

/* An operation that the provider did not take was none. */
static ssize_t posted(ssize_t code, const void *context, uint64_t *count)
{
    if (code != 0 && over(context))
        __atomic_fetch_sub(count, 1, __ATOMIC_RELAXED);
    return code;
}

static ssize_t do_recv(struct fid_ep *ep, void *to, size_t size, void *desc, fi_addr_t from,
                       uint64_t tag, uint64_t ignore, void *context)
{
    to = admit(to, size, desc, FI_RECV, context);
    return posted(tagged.recv(ep, to, size, NULL, from, tag, ignore, context), context, &receives);
}

static ssize_t do_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                        fi_addr_t from, uint64_t tag, uint64_t ignore, void *context)
{
    for (size_t i = 0; i < count; i++) {
        if ((desc != NULL && desc[i] != NULL) || reach(iov[i].iov_base, iov[i].iov_len) != NULL)
            fail("device memory in pieces", iov[i].iov_base, iov[i].iov_len);
    }
    return tagged.recvv(ep, iov, desc, count, from, tag, ignore, context);
}

static ssize_t do_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *given, uint64_t flags)
{
    struct fi_msg_tagged msg = *given;
    struct iovec piece;
    if (msg.iov_count == 1) {
        piece = msg.msg_iov[0];
        piece.iov_base = admit(piece.iov_base, piece.iov_len, msg.desc == NULL ? NULL : msg.desc[0],
                               FI_RECV, msg.context);
        msg.msg_iov = &piece;
        msg.desc = NULL;
    }
    return posted(tagged.recvmsg(ep, &msg, flags), msg.context, &receives);
}

static ssize_t do_send(struct fid_ep *ep, const void *from, size_t size, void *desc, fi_addr_t to,
                       uint64_t tag, void *context)
{
    from = admit(from, size, desc, FI_SEND, context);
    return posted(tagged.send(ep, from, size, NULL, to, tag, context), context, &sends);
}

static ssize_t do_senddata(struct fid_ep *ep, const void *from, size_t size, void *desc,
                           uint64_t data, fi_addr_t to, uint64_t tag, void *context)
{
    from = admit(from, size, desc, FI_SEND, context);
    return posted(tagged.senddata(ep, from, size, NULL, data, to, tag, context), context, &sends);
}

static ssize_t do_inject(struct fid_ep *ep, const void *from, size_t size, fi_addr_t to, uint64_t tag)
{
    if (size != 0 && reach(from, size) != NULL)
        fail("device memory is injected", from, size);
    return tagged.inject(ep, from, size, to, tag);
}

static ssize_t do_injectdata(struct fid_ep *ep, const void *from, size_t size, uint64_t data,
                             fi_addr_t to, uint64_t tag)
{
    if (size != 0 && reach(from, size) != NULL)
        fail("device memory is injected", from, size);
    return tagged.injectdata(ep, from, size, data, to, tag);
}

static ssize_t do_read(struct fid_cq *cq, void *room, size_t count)
{
    struct fi_cq_tagged_entry *entries = room;
    ssize_t found = cq_ops.read(cq, room, count);
    for (ssize_t i = 0; i < found; i++)
        over(entries[i].op_context);
    return found;
}

static ssize_t do_readerr(struct fid_cq *cq, struct fi_cq_err_entry *room, uint64_t flags)
{
    ssize_t found = cq_ops.readerr(cq, room, flags);
    if (found == 1)
        over(room->op_context);
    return found;
}

/* What the real provider was asked for: the promise is ours, not its. */
static struct fi_info *without_hmem(const struct fi_info *info)
{
    struct fi_info *copy = dupinfo(info);
    if (copy == NULL)
        fail("no memory", NULL, 0);
    copy->caps &= ~FI_HMEM;
    copy->domain_attr->mr_mode &= ~(FI_MR_HMEM | FI_MR_ALLOCATED);
    return copy;
}

static int do_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                       void *context)
{
    static struct fi_ops_tagged ours;
    struct fi_info *copy = without_hmem(info);
    int code = domain_ops.endpoint(domain, copy, ep, context);
    freeinfo(copy);
    if (code != 0)
        return code;
    ours = tagged = *(*ep)->tagged;
    ours.recv = do_recv;
    ours.recvv = do_recvv;
    ours.recvmsg = do_recvmsg;
    ours.send = do_send;
    ours.senddata = do_senddata;
    ours.inject = do_inject;
    ours.injectdata = do_injectdata;
    ours.sendv = NULL;
    ours.sendmsg = NULL;
    (*ep)->tagged = &ours;
    return 0;
}

static int do_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
                      void *context)
{
    static struct fi_ops_cq ours;
    int code = domain_ops.cq_open(domain, attr, cq, context);
    if (code != 0)
        return code;
    ours = cq_ops = *(*cq)->ops;
    ours.read = do_read;
    ours.readerr = do_readerr;
    (*cq)->ops = &ours;
    return 0;
}

static int do_close(struct fid *domain)
{
    if (count_live() != 0)
        fail("registrations are left", NULL, count_live());
    return domain_fid_ops.close(domain);
}

static int do_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                     void *context)
{
    static struct fi_ops_domain ours;
    static struct fi_ops fid_ours;
    static struct fi_ops_mr mr_ours;
    struct fi_info *copy;
    int code;
    if (!(info->caps & FI_HMEM) || getenv("REACHING") == NULL)
        return fabric_ops.domain(fabric, info, domain, context);
    copy = without_hmem(info);
    code = fabric_ops.domain(fabric, copy, domain, context);
    freeinfo(copy);
    if (code != 0)
        return code;
    ours = domain_ops = *(*domain)->ops;
    ours.endpoint = do_endpoint;
    ours.cq_open = do_cq_open;
    (*domain)->ops = &ours;
    fid_ours = domain_fid_ops = *(*domain)->fid.ops;
    fid_ours.close = do_close;
    (*domain)->fid.ops = &fid_ours;
    mr_ours = *(*domain)->mr;
    mr_ours.regattr = begin_registration;
    (*domain)->mr = &mr_ours;
    return 0;
}

static int do_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    static struct fi_ops_fabric ours;
    int code = open_fabric(attr, fabric, context);
    if (code != 0)
        return code;
    ours = fabric_ops = *(*fabric)->ops;
    ours.domain = do_domain;
    (*fabric)->ops = &ours;
    return 0;
}

static bool is_reaching(const char *provider)
{
    const char *names = getenv("REACHING");
    for (; *names != '\0'; names += strcspn(names, ","), names += *names == ',') {
        size_t length = strcspn(names, ",");
        if (strlen(provider) == length && strncmp(provider, names, length) == 0)
            return true;
    }
    return false;
}

static int do_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **list)
{
    const char *asking = getenv("ASKING");
    struct fi_info *wishes;
    bool wanted;
    int code;
    if (hints == NULL)
        return getinfo(version, node, service, flags, hints, list);
    wanted = hints->caps & FI_HMEM;
    if (wanted && asking != NULL && strcmp(asking, "never") == 0)
        fail("FI_HMEM is asked for", NULL, 0);
    wanted = wanted && getenv("REACHING") != NULL;
    if (wanted && !(hints->domain_attr->mr_mode & FI_MR_HMEM))
        fail("FI_HMEM is asked for without FI_MR_HMEM", NULL, 0);
    wishes = wanted ? without_hmem(hints) : dupinfo(hints);
    if (getenv("NODE_LOCAL") != NULL)
        wishes->caps &= ~FI_REMOTE_COMM;
    code = getinfo(version, node, service, flags, wishes, list);
    freeinfo(wishes);
    for (struct fi_info **place = list; wanted && code == 0 && *place != NULL;) {
        struct fi_info *info = *place;
        if (is_reaching(info->fabric_attr->prov_name)) {
            info->caps |= FI_HMEM;
            info->domain_attr->mr_mode |= FI_MR_HMEM;
            place = &info->next;
        } else {
            *place = info->next;
            info->next = NULL;
            freeinfo(info);
        }
    }
    return code == 0 && *list == NULL ? -FI_ENODATA : code;
}

uint64_t provider_sends(void)
{
    return __atomic_load_n(&sends, __ATOMIC_RELAXED);
}

uint64_t provider_receives(void)
{
    return __atomic_load_n(&receives, __ATOMIC_RELAXED);
}

uint64_t provider_live(void)
{
    uint64_t live;
    pthread_mutex_lock(&lock);
    live = count_live();
    pthread_mutex_unlock(&lock);
    return live;
}

void *dlsym(void *handle, const char *name)
{
    if (real_dlsym == NULL)
        *(void **)&real_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (strcmp(name, "fi_getinfo") == 0) {
        *(void **)&freeinfo = real_dlsym(handle, "fi_freeinfo");
        *(void **)&dupinfo = real_dlsym(handle, "fi_dupinfo");
        *(void **)&getinfo = real_dlsym(handle, name);
        return (void *)do_getinfo;
    }
    if (strcmp(name, "fi_fabric") == 0) {
        *(void **)&open_fabric = real_dlsym(handle, name);
        return (void *)do_fabric;
    }
    return real_dlsym(handle, name);
}
