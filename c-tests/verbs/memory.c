/* Protection domains and memory regions. A key is asked for whenever a byte is touched: it may have ended meanwhile.
 *
 * Real devices hold the pages that lay there at the registration. A region whose memory was unmapped and mapped again is
 * not that memory any more: a memory policy marks the pages of private mappings at the registration, new ones have none, and
 * who uses such a region ends. Where the kernel has no policies, or refuses them, this is not seen. */
#define _GNU_SOURCE
#include "standin.h"

#include <linux/capability.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((uintptr_t)4096)

static struct mr **regions; /* by the upper 24 bits of their keys */
static uint32_t region_count, next_place;
static uint8_t variant;

/* The last that have ended, so that a stale pointer to one is recognized. Not all: a program makes and ends them for ever. */
enum { ENDED = 1024 };
static struct mr *ended[ENDED];
static uint32_t next_ended;

PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    ENTER_NULL;
    if (context_of(context)->device->removed) return refuse_null(EIO);
    struct pd *pd = make(sizeof *pd);
    pd->tag = (struct tag){.kind = KIND_PD, .alive = true};
    pd->public.context = context;
    context_of(context)->users++;
    ledger_add(PDS);
    return &pd->public;
}

PUBLIC int ibv_dealloc_pd(struct ibv_pd *public)
{
    ENTER_CODE;
    struct pd *pd = (struct pd *)public;
    LIVE(pd, KIND_PD, "protection domain");
    if (pd->users != 0) return EBUSY;
    BURY(pd);
    context_of(public->context)->users--;
    ledger_remove(PDS);
    return 0;
}

/* --- marks */

static void mark(uintptr_t from, uintptr_t to, int mode)
{
    unsigned long node = 1;
    if (from < to)
        syscall(SYS_mbind, from, to - from, mode, mode == MPOL_DEFAULT ? NULL : &node, mode == MPOL_DEFAULT ? 0 : 64, 0);
}

static bool marked(uintptr_t address)
{
    int mode = MPOL_DEFAULT;
    unsigned long nodes[16];
    if (syscall(SYS_get_mempolicy, &mode, nodes, sizeof nodes * 8, address, MPOL_F_ADDR) != 0) return false;
    return mode == MPOL_PREFERRED;
}

/* Whole pages, so that no other's memory beside is marked as well. */
static uintptr_t first_page(const struct mr *mr) { return ((uintptr_t)mr->public.addr + PAGE - 1) & ~(PAGE - 1); }
static uintptr_t last_page(const struct mr *mr) { return ((uintptr_t)mr->public.addr + mr->public.length) & ~(PAGE - 1); }

static void unmark(const struct mr *ended)
{
    for (uint32_t i = 0; i < region_count; i++)
        if (regions[i] != NULL && regions[i]->marked && first_page(regions[i]) < last_page(ended) &&
            first_page(ended) < last_page(regions[i]))
            return;
    mark(first_page(ended), last_page(ended), MPOL_DEFAULT);
}

/* --- regions */

static bool mapped(const void *address, size_t length)
{
    uintptr_t from = (uintptr_t)address & ~(PAGE - 1), to = (uintptr_t)address + length;
    static unsigned char pages[4096];
    if (to < (uintptr_t)address) return false;
    for (; from < to; from += sizeof pages * PAGE) {
        size_t size = to - from < sizeof pages * PAGE ? to - from : sizeof pages * PAGE;
        if (mincore((void *)from, size, pages) != 0) return false;
    }
    return true;
}

/* A device writes where the process may, as the kernel pins pages. */
static bool writable(uintptr_t from, uintptr_t to)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uintptr_t start, end;
    char write, line[512];
    if (maps == NULL) violation("/proc/self/maps is not there");
    while (from < to && fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%lx-%lx %*c%c", &start, &end, &write) == 3 && start <= from && from < end) {
            if (write != 'w') break;
            from = end;
        }
    fclose(maps);
    return from >= to;
}

static bool may_pin_all(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & 1u << CAP_IPC_LOCK) != 0;
}

/* Pages that are registered count against what the process may lock, as often as they are registered (ib_umem_get of Linux). */
static bool may_pin(uintptr_t from, uintptr_t to)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || may_pin_all()) return true;
    uintptr_t pinned = ((to + PAGE - 1) & ~(PAGE - 1)) - (from & ~(PAGE - 1));
    for (uint32_t i = 0; i < region_count; i++)
        if (regions[i] != NULL) {
            uintptr_t start = (uintptr_t)regions[i]->public.addr, end = start + regions[i]->public.length;
            pinned += ((end + PAGE - 1) & ~(PAGE - 1)) - (start & ~(PAGE - 1));
        }
    return pinned <= limit.rlim_cur;
}

static struct ibv_mr *region_make(struct ibv_pd *public, void *address, size_t length, unsigned access)
{
    struct pd *pd = (struct pd *)public;
    struct context *context = context_of(public->context);
    const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING;
    if (context->device->removed) return refuse_null(EIO);
    if ((access & ~known) != 0) return refuse_null(EOPNOTSUPP);
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)
        return refuse_null(EINVAL);
    if (length == 0) return refuse_null(EINVAL);
    if (!mapped(address, length)) return refuse_null(EFAULT);
    if ((access & IBV_ACCESS_LOCAL_WRITE) != 0 && !writable((uintptr_t)address, (uintptr_t)address + length))
        return refuse_null(EFAULT);
    if (!may_pin((uintptr_t)address, (uintptr_t)address + length)) return refuse_null(ENOMEM);
    uint32_t place = next_place;
    while (place < region_count && regions[place] != NULL) place++;
    if (place == region_count) {
        /* From the beginning, where keys have ended longest ago. */
        for (place = 0; place < region_count && regions[place] != NULL;) place++;
        if (place == region_count) {
            region_count = region_count * 2 + 64;
            regions = realloc(regions, region_count * sizeof *regions);
            if (regions == NULL) violation("no memory");
            memset(regions + place, 0, (region_count - place) * sizeof *regions);
        }
    }
    next_place = place + 1;
    struct mr *mr = make(sizeof *mr);
    mr->tag = (struct tag){.kind = KIND_MR, .alive = true};
    /* The two keys are never the same, and neither comes again soon. Peers have none of what they have no right to (rxe). */
    variant += 3;
    uint32_t key = (place + 1) << 8 | variant;
    mr->access = (int)access;
    mr->public = (struct ibv_mr){.context = public->context,
        .pd = public,
        .addr = address,
        .length = length,
        .handle = place,
        .lkey = key,
        .rkey = (access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 ? key ^ 0x80 : 0};
    regions[place] = mr;
    if (settings.marks) {
        mark(first_page(mr), last_page(mr), MPOL_PREFERRED);
        mr->marked = first_page(mr) < last_page(mr) && marked(first_page(mr)) && marked(last_page(mr) - PAGE);
    }
    pd->users++;
    ledger_add(MRS);
    return &mr->public;
}

#undef ibv_reg_mr
PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    ENTER_NULL;
    LIVE((struct pd *)pd, KIND_PD, "protection domain");
    return region_make(pd, address, length, (unsigned)access);
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned access)
{
    ENTER_NULL;
    LIVE((struct pd *)pd, KIND_PD, "protection domain");
    if (iova != (uintptr_t)address) return refuse_null(EOPNOTSUPP);
    return region_make(pd, address, length, access);
}

/* Of a device's own memory: neither rxe nor siw takes it. */
PUBLIC struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
    ENTER_NULL;
    (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    LIVE((struct pd *)pd, KIND_PD, "protection domain");
    return refuse_null(EOPNOTSUPP);
}

PUBLIC int ibv_dereg_mr(struct ibv_mr *public)
{
    ENTER_CODE;
    struct mr *mr = (struct mr *)public;
    LIVE(mr, KIND_MR, "memory region");
    mr->tag.alive = false;
    regions[public->handle] = NULL;
    if (mr->marked) unmark(mr);
    ((struct pd *)public->pd)->users--;
    free(ended[next_ended]);
    ended[next_ended] = mr;
    next_ended = (next_ended + 1) % ENDED;
    ledger_remove(MRS);
    return 0;
}

/* For programs that ask how much the process has registered. */
PUBLIC uint64_t standin_registered(void);
PUBLIC uint64_t standin_registered(void)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < region_count; i++)
        if (regions[i] != NULL) bytes += regions[i]->public.length;
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* --- access */

static char *reach(const struct mr *mr, const struct pd *pd, uint64_t address, uint64_t length, int access)
{
    uint64_t base = (uintptr_t)mr->public.addr;
    if (mr->public.pd != &pd->public || (mr->access & access) != access) return NULL;
    if (address < base || length > mr->public.length || address - base > mr->public.length - length) return NULL;
    if (mr->marked && length != 0) {
        uintptr_t from = address & ~(PAGE - 1), to = (address + length - 1) & ~(PAGE - 1);
        if ((from >= first_page(mr) && from < last_page(mr) && !marked(from)) ||
            (to >= first_page(mr) && to < last_page(mr) && !marked(to)))
            violation("memory region %#x (%p, %zu bytes) is used, and its memory was unmapped meanwhile", mr->public.lkey,
                mr->public.addr, mr->public.length);
    }
    return (char *)(uintptr_t)address;
}

char *memory_local(const struct pd *pd, uint32_t lkey, uint64_t address, uint64_t length, int access)
{
    uint32_t place = (lkey >> 8) - 1;
    if (place >= region_count || regions[place] == NULL || regions[place]->public.lkey != lkey) return NULL;
    return reach(regions[place], pd, address, length, access);
}

char *memory_remote(const struct pd *pd, uint32_t rkey, uint64_t address, uint64_t length, int access)
{
    uint32_t place = (rkey >> 8) - 1;
    if (place >= region_count || regions[place] == NULL || regions[place]->public.rkey != rkey) return NULL;
    return reach(regions[place], pd, address, length, access);
}
