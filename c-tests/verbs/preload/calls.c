/* Preloaded into ranks of steady.c: counts what hawser asks of the C library between two marks, in the thread that sets them:
 * allocations, locks, system calls, and looks at the clock, which are none. A call is hawser's when it returns to the file that the
 * component was loaded from. What the compiler has in its place is not seen: a lock that nobody holds is a lock there only if the
 * library has it, and one that is waited for is a system call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { ALLOCATIONS, LOCKS, SYSTEM_CALLS, CLOCK, KINDS };

static const char *const names[KINDS] = {"allocations", "locks", "system-calls", "clock"};
static unsigned long counts[KINDS];
static uintptr_t first, last;
static __thread int is_counting;

#define PUBLIC __attribute__((visibility("default")))
#define COUNT(kind) count(kind, __func__, __builtin_return_address(0))

static inline void count(enum kind kind, const char *name, const void *caller)
{
    if (!is_counting || (uintptr_t)caller < first || (uintptr_t)caller >= last) return;
    is_counting = 0;
    if (counts[kind]++ == 0) fprintf(stderr, "calls: %s, from %#lx\n", name, (unsigned long)((uintptr_t)caller - first));
    is_counting = 1;
}

/* --- marks */

static int look(struct dl_phdr_info *info, size_t size, void *unused)
{
    char path[PATH_MAX];
    (void)size, (void)unused;
    /* Each component is a link to it, and it has the name of the first. */
    if (realpath(info->dlpi_name, path) == NULL || strstr(path, "/libhawser.so") == NULL) return 0;
    first = UINTPTR_MAX;
    for (int at = 0; at < info->dlpi_phnum; at++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[at];
        if (part->p_type != PT_LOAD) continue;
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (begin < first) first = begin;
        if (begin + part->p_memsz > last) last = begin + part->p_memsz;
    }
    return 1;
}

/* Whether hawser is there. */
PUBLIC int calls_begin(void)
{
    if (first == 0) dl_iterate_phdr(look, NULL);
    memset(counts, 0, sizeof counts);
    is_counting = 1;
    return first != 0;
}

/* Prints `calls RANK KIND COUNT` for each kind. */
PUBLIC void calls_end(int rank)
{
    is_counting = 0;
    for (int kind = 0; kind < KINDS; kind++) printf("calls %d %s %lu\n", rank, names[kind], counts[kind]);
    fflush(stdout);
}

/* --- memory: by the names under which the C library has it beside, because looking for names needs some */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t number, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

PUBLIC void *malloc(size_t size)
{
    COUNT(ALLOCATIONS);
    return __libc_malloc(size);
}

PUBLIC void *calloc(size_t number, size_t size)
{
    COUNT(ALLOCATIONS);
    return __libc_calloc(number, size);
}

PUBLIC void *realloc(void *memory, size_t size)
{
    COUNT(ALLOCATIONS);
    return __libc_realloc(memory, size);
}

PUBLIC void free(void *memory)
{
    COUNT(ALLOCATIONS);
    __libc_free(memory);
}

PUBLIC int posix_memalign(void **memory, size_t alignment, size_t size)
{
    COUNT(ALLOCATIONS);
    *memory = __libc_memalign(alignment, size);
    return *memory != NULL ? 0 : ENOMEM;
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size)
{
    COUNT(ALLOCATIONS);
    return __libc_memalign(alignment, size);
}

/* --- all others go where they would have gone */

#define OTHER(kind, type, name, declared, given)                       \
    PUBLIC type name declared                                          \
    {                                                                  \
        static type(*whole) declared;                                  \
        COUNT(kind);                                                   \
        if (whole == NULL) *(void **)&whole = dlsym(RTLD_NEXT, #name); \
        return whole given;                                            \
    }

OTHER(LOCKS, int, pthread_mutex_lock, (pthread_mutex_t * lock), (lock))
OTHER(LOCKS, int, pthread_mutex_trylock, (pthread_mutex_t * lock), (lock))
OTHER(LOCKS, int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
OTHER(LOCKS, int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
OTHER(LOCKS, int, pthread_spin_lock, (pthread_spinlock_t * lock), (lock))
OTHER(LOCKS, int, pthread_spin_trylock, (pthread_spinlock_t * lock), (lock))
OTHER(CLOCK, int, clock_gettime, (clockid_t clock, struct timespec *time), (clock, time))
OTHER(SYSTEM_CALLS, int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec *time, struct timespec *left),
    (clock, flags, time, left))
OTHER(SYSTEM_CALLS, int, nanosleep, (const struct timespec *time, struct timespec *left), (time, left))
OTHER(SYSTEM_CALLS, int, sched_yield, (void), ())
OTHER(SYSTEM_CALLS, ssize_t, read, (int file, void *bytes, size_t size), (file, bytes, size))
OTHER(SYSTEM_CALLS, ssize_t, write, (int file, const void *bytes, size_t size), (file, bytes, size))
OTHER(SYSTEM_CALLS, ssize_t, readv, (int file, const struct iovec *pieces, int number), (file, pieces, number))
OTHER(SYSTEM_CALLS, ssize_t, writev, (int file, const struct iovec *pieces, int number), (file, pieces, number))
OTHER(SYSTEM_CALLS, ssize_t, send, (int file, const void *bytes, size_t size, int flags), (file, bytes, size, flags))
OTHER(SYSTEM_CALLS, ssize_t, recv, (int file, void *bytes, size_t size, int flags), (file, bytes, size, flags))
OTHER(SYSTEM_CALLS, ssize_t, sendmsg, (int file, const struct msghdr *message, int flags), (file, message, flags))
OTHER(SYSTEM_CALLS, ssize_t, recvmsg, (int file, struct msghdr *message, int flags), (file, message, flags))
OTHER(SYSTEM_CALLS, int, sendmmsg, (int file, struct mmsghdr *messages, unsigned number, int flags), (file, messages, number, flags))
OTHER(SYSTEM_CALLS, int, recvmmsg, (int file, struct mmsghdr *messages, unsigned number, int flags, struct timespec *time),
    (file, messages, number, flags, time))
OTHER(SYSTEM_CALLS, int, poll, (struct pollfd * files, nfds_t number, int timeout), (files, number, timeout))
OTHER(SYSTEM_CALLS, int, epoll_wait, (int file, struct epoll_event *events, int number, int timeout),
    (file, events, number, timeout))
OTHER(SYSTEM_CALLS, int, mprotect, (void *memory, size_t size, int rights), (memory, size, rights))
OTHER(SYSTEM_CALLS, int, madvise, (void *memory, size_t size, int advice), (memory, size, advice))
OTHER(SYSTEM_CALLS, int, munmap, (void *memory, size_t size), (memory, size))
OTHER(SYSTEM_CALLS, void *, mmap64, (void *memory, size_t size, int rights, int flags, int file, off64_t at),
    (memory, size, rights, flags, file, at))

/* Locks that are waited for, and whatever has no name of its own: each has at most six arguments. */
PUBLIC long syscall(long number, ...)
{
    static long (*whole)(long, ...);
    va_list list;
    long given[6];
    COUNT(SYSTEM_CALLS);
    if (whole == NULL) *(void **)&whole = dlsym(RTLD_NEXT, "syscall");
    va_start(list, number);
    for (int at = 0; at < 6; at++) given[at] = va_arg(list, long);
    va_end(list);
    return whole(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
