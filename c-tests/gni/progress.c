/* Progress of the provider gni while the program computes or sleeps: two processes, one subject a run.
 *
 *     progress SUBJECT
 *
 * Nothing here has a time limit: what is not done, or who is not woken, is a run that does not end.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static struct fid_ep *ep;
static struct fid_cq *tx, *rx;
static struct fid_cntr *received;
static struct fid_av *av;
static fi_addr_t peer;
static int wire[2] = {-1, -1}, is_child;
static pid_t child;
static enum fi_wait_obj wait_obj = FI_WAIT_UNSPEC;
static enum fi_progress data_progress = FI_PROGRESS_AUTO, control_progress = FI_PROGRESS_AUTO;
static enum fi_threading threading = FI_THREAD_SAFE;

/* What both processes see. */
static struct shared {
    atomic_int turns[2];
} *shared;

static void nap(void)
{
    struct timespec time = {0, 100000};
    nanosleep(&time, NULL);
}

/* Both have called it so many times. Nothing of libfabric's is called meanwhile. A process without its other one ends. */
static void meet(void)
{
    int turn = atomic_fetch_add(&shared->turns[is_child], 1) + 1;
    while (atomic_load(&shared->turns[!is_child]) < turn) {
        siginfo_t ended = {0};
        if (!is_child && waitid(P_PID, (id_t) child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0)
            NEED(ended.si_pid != 0 && atomic_load(&shared->turns[!is_child]) < turn);
        nap();
    }
}

static void begin(void)
{
    char name[48], other[48];
    size_t length = 48;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(shared == MAP_FAILED);
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, wire));
    child = fork();
    NEED(child < 0);
    is_child = child == 0;
    NEED(close(wire[!is_child]));
    if (is_child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        go_away();
    }
    struct fi_info *hints = wish();
    hints->caps = FI_MSG | FI_TAGGED;
    hints->domain_attr->data_progress = data_progress;
    hints->domain_attr->control_progress = control_progress;
    hints->domain_attr->threading = threading;
    open_domain(API, hints);
    IS(info->domain_attr->data_progress, data_progress);
    IS(info->domain_attr->control_progress, control_progress);
    IS(info->domain_attr->threading, threading);
    struct fi_cntr_attr counter = {.wait_obj = wait_obj};
    tx = a_cq(0, FI_CQ_FORMAT_TAGGED, wait_obj);
    rx = a_cq(0, FI_CQ_FORMAT_TAGGED, wait_obj);
    NEED(fi_cntr_open(domain, &counter, &received, NULL));
    av = an_av(FI_AV_MAP, 0);
    NEED(fi_endpoint(domain, info, &ep, NULL));
    NEED(fi_ep_bind(ep, &av->fid, 0));
    NEED(fi_ep_bind(ep, &tx->fid, FI_TRANSMIT));
    NEED(fi_ep_bind(ep, &rx->fid, FI_RECV));
    NEED(fi_ep_bind(ep, &received->fid, FI_RECV));
    NEED(fi_enable(ep));
    NEED(fi_getname(&ep->fid, name, &length));
    NEED(write(wire[is_child], name, 48) != 48);
    NEED(recv(wire[is_child], other, 48, MSG_WAITALL) != 48);
    IS(fi_av_insert(av, other, 1, &peer, 0, NULL), 1);
}

static int end(void)
{
    meet();
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&av->fid), 0);
    IS(fi_close(&tx->fid), 0);
    IS(fi_close(&rx->fid), 0);
    IS(fi_close(&received->fid), 0);
    close_domain();
    if (is_child)
        return wrong != 0;
    int status;
    NEED(waitpid(child, &status, 0) != child);
    IS(status, 0);
    return verdict();
}

/* Until the call is not refused for want of room. */
#define POST(call)                              \
    do {                                        \
        ssize_t posted;                         \
        while ((posted = (call)) == -FI_EAGAIN) \
            fi_cq_read(tx, NULL, 0);            \
        NEED(posted);                           \
    } while (0)

static void expect(struct fid_cq *cq, const void *context)
{
    struct fi_cq_tagged_entry entry = {0};
    ssize_t read;
    while ((read = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
        ;
    NEED(read - 1);
    HOLDS(entry.op_context == context);
}

/* Sleeps for it instead. */
static void sleep_for(struct fid_cq *cq, const void *context)
{
    struct fi_cq_tagged_entry entry = {0};
    NEED(fi_cq_sread(cq, &entry, 1, NULL, -1) - 1);
    HOLDS(entry.op_context == context);
}

static int same(const volatile unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (unsigned char) (seed + i * 7))
            return 0;
    return 1;
}

static unsigned char *some(size_t length, unsigned seed)
{
    unsigned char *bytes = malloc(length);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char) (seed + i * 7);
    return bytes;
}

static const size_t lengths[] = {8, 4096, 20000, 1 << 20, 3 << 20};
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths) };

/* One side posts receives and computes, the other has to hear that they are there; then the other way round. */
static void computes(void)
{
    for (int turn = 0; turn < 2; turn++) {
        unsigned char *bytes[LENGTHS];
        if (turn == is_child) {
            for (int i = 0; i < LENGTHS; i++) {
                bytes[i] = calloc(1, lengths[i]);
                POST(fi_trecv(ep, bytes[i], lengths[i], NULL, FI_ADDR_UNSPEC, i, 0, &bytes[i]));
            }
            meet();
            /* The sender has been told of each. */
            meet();
            for (int i = 0; i < LENGTHS; i++) {
                HOLDS(same(bytes[i], lengths[i], i));
                expect(rx, &bytes[i]);
            }
        } else {
            meet();
            for (int i = 0; i < LENGTHS; i++) {
                bytes[i] = some(lengths[i], i);
                struct iovec piece = {bytes[i], lengths[i]};
                struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = peer, .tag = i, .context = &bytes[i]};
                POST(fi_tsendmsg(ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
            }
            for (int i = 0; i < LENGTHS; i++)
                expect(tx, &bytes[i]);
            meet();
        }
        for (int i = 0; i < LENGTHS; i++)
            free(bytes[i]);
    }
}

/* The number of the helper's thread of this process; 0 if there is none. */
static int helper(void)
{
    char path[64], name[32];
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file) && strcmp(name, "hawser gni\n") == 0)
            found = atoi(task->d_name);
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return found;
}

/* The same once it has its name. */
static int helper_of_mine(void)
{
    int thread;
    while ((thread = helper()) == 0)
        nap();
    return thread;
}

/* How often a thread has gone to sleep, whether it sleeps, and how much it has computed, in ticks. */
static long turns_of(int thread, int *sleeps, long *ticks)
{
    char path[64], line[512], state = 0;
    long turns = -1, user, system;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    FILE *file = fopen(path, "r");
    NEED(!file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "State: %c", &state) != 1)
            sscanf(line, "voluntary_ctxt_switches: %ld", &turns);
    fclose(file);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    file = fopen(path, "r");
    NEED(!file || !fgets(line, sizeof line, file));
    NEED(sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system) != 2);
    *ticks = user + system;
    *sleeps = state == 'S';
    fclose(file);
    return turns;
}

/* A thread that sleeps stays asleep: one that looks now and then never passes this, nor one that waits for a core. */
static void is_asleep(int thread)
{
    long before, after, ticks_before, ticks_after;
    int slept, sleeps;
    do {
        before = turns_of(thread, &slept, &ticks_before);
        struct timespec time = {0, 300000000};
        nanosleep(&time, NULL);
        after = turns_of(thread, &sleeps, &ticks_after);
    } while (before != after || !slept || !sleeps);
    IS(ticks_after, ticks_before);
}

/* Both compute: one has posted more than there is room for on the way, the other waits for its memory to change. */
static void queued(void)
{
    enum { N = 600, LENGTH = 4096 };
    unsigned char *bytes = calloc(N, LENGTH);
    if (is_child)
        for (int i = 0; i < N; i++)
            POST(fi_trecv(ep, bytes + i * LENGTH, LENGTH, NULL, FI_ADDR_UNSPEC, i, 0, NULL));
    meet();
    if (!is_child)
        for (int i = 0; i < N; i++) {
            memset(bytes + i * LENGTH, i % 255 + 1, LENGTH);
            IS(fi_tsend(ep, bytes + i * LENGTH, LENGTH, NULL, peer, i, NULL), 0);
        }
    else
        for (int i = 0; i < N; i++) {
            volatile unsigned char *in = bytes + i * LENGTH;
            while (in[0] == 0 || in[LENGTH - 1] == 0)
                nap();
            IS(in[0], i % 255 + 1);
            IS(in[LENGTH - 1], i % 255 + 1);
        }
    /* The bytes are there a moment before their entry is, and before the sender hears of it: both helpers do all that
       there is to do. Under valgrind there is no pidfd_open, and a helper that has to look after its peer never sleeps. */
    int pidfd = (int) syscall(SYS_pidfd_open, getpid(), 0), can_sleep = pidfd >= 0;
    for (int turn = 0; can_sleep && turn < 2; turn++) {
        is_asleep(helper_of_mine());
        meet();
    }
    struct fi_cq_tagged_entry entry;
    for (int i = 0; can_sleep && i < N; i++)
        IS(fi_cq_read(is_child ? rx : tx, &entry, 1), 1);
    for (int i = 0; !can_sleep && i < N; i++)
        expect(is_child ? rx : tx, NULL);
    if (can_sleep)
        close(pidfd);
    free(bytes);
}

/* A queue is full; what comes is left where it is, and goes on when entries were read, without another call. */
static void starved(void)
{
    /* For what comes there is a quarter more than was asked for. */
    enum { PLACES = 8192 + 2048, N = PLACES + 500 };
    static volatile uint64_t in[N];
    if (is_child)
        for (int i = 0; i < N; i++)
            POST(fi_trecv(ep, (void *) &in[i], 8, NULL, FI_ADDR_UNSPEC, i, 0, NULL));
    meet();
    if (!is_child) {
        for (uint64_t i = 0; i < N; i++) {
            uint64_t word = i + 1;
            POST(fi_tinject(ep, &word, 8, peer, i));
        }
    } else {
        struct fi_cq_tagged_entry entries[600];
        /* The last places are promised before all entries are there. */
        while (in[PLACES - 10] == 0)
            nap();
        IS(in[N - 1], 0);
        IS(fi_cq_read(rx, entries, 600), 600);
        while (in[N - 1] == 0)
            nap();
        for (int i = 600; i < N;) {
            ssize_t read = fi_cq_read(rx, entries, 600);
            if (read != -FI_EAGAIN) {
                HOLDS(read > 0);
                i += (int) read;
            }
        }
    }
    meet();
}

static void say_and_hear(void)
{
    static uint64_t in;
    uint64_t out = 4711;
    in = 0;
    POST(fi_trecv(ep, &in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &in));
    POST(fi_tinject(ep, &out, 8, peer, 1));
    expect(rx, &in);
    IS(in, 4711);
    meet();
}

/* The helper of a domain with nothing to do computes nothing, and takes no signal. */
static void idle(void)
{
    int thread = helper_of_mine();
    is_asleep(thread);
    say_and_hear();
    is_asleep(thread);
    char path[64], line[256];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    FILE *file = fopen(path, "r");
    NEED(!file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "SigBlk: %llx", &blocked);
    fclose(file);
    for (int i = 0; i < 4; i++)
        HOLDS(blocked & 1ULL << ((int[]) {SIGTERM, SIGINT, SIGCHLD, SIGUSR1}[i] - 1));
    /* And it is woken all the same. */
    static volatile uint64_t in;
    POST(fi_trecv(ep, (void *) &in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, NULL));
    meet();
    uint64_t out = 815;
    POST(fi_tinject(ep, &out, 8, peer, 2));
    while (in != 815)
        nap();
    IS(fi_close(&received->fid), -FI_EBUSY);
}

/* Without it there is no thread. */
static void manual(void)
{
    say_and_hear();
    IS(helper(), 0);
}

static _Atomic int sleeper_thread;

static void *sleeper(void *context)
{
    atomic_store(&sleeper_thread, (int) gettid());
    sleep_for(rx, context);
    return NULL;
}

/* A call that waits sleeps until there is something, and does not look now and then. */
static void sleeps(void)
{
    static uint64_t in;
    say_and_hear();
    if (is_child) {
        pthread_t thread;
        POST(fi_trecv(ep, &in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, &in));
        NEED(pthread_create(&thread, NULL, sleeper, &in));
        while (atomic_load(&sleeper_thread) == 0)
            nap();
        is_asleep(sleeper_thread);
        meet();
        NEED(pthread_join(thread, NULL));
        IS(in, 42);
    } else {
        uint64_t out = 42;
        meet();
        POST(fi_tinject(ep, &out, 8, peer, 3));
    }
}

/* Both sleep in turn, for a queue, a counter or a descriptor, for short and long messages; nobody is forgotten. */
static void wakes(void)
{
    enum { N = 600, LONG = 50000 };
    unsigned char *in = malloc(LONG), *out = calloc(1, LONG);
    struct pollfd fd = {.events = POLLIN}, counter = {.events = POLLIN};
    if (wait_obj == FI_WAIT_FD) {
        NEED(fi_control(&rx->fid, FI_GETWAIT, &fd.fd));
        NEED(fi_control(&received->fid, FI_GETWAIT, &counter.fd));
    }
    for (uint64_t i = 0; i < N; i++) {
        size_t length = i % 5 == 4 ? LONG : 8;
        POST(fi_trecv(ep, in, length, NULL, FI_ADDR_UNSPEC, i, 0, in));
        if (is_child)
            POST(fi_tsend(ep, out, length, NULL, peer, i, out));
        struct fid *fids[] = {&rx->fid}, *counters[] = {&received->fid};
        struct fi_cq_tagged_entry entry;
        if (wait_obj != FI_WAIT_FD && i % 2 == 0) {
            sleep_for(rx, in);
        } else if (wait_obj != FI_WAIT_FD) {
            IS(fi_cntr_wait(received, i + 1, -1), 0);
            expect(rx, in);
        } else if (i % 2 == 0) {
            while (fi_cq_read(rx, &entry, 1) != 1)
                if (fi_trywait(fabric, fids, 1) == 0)
                    NEED(poll(&fd, 1, -1) != 1);
        } else {
            while (fi_cntr_read(received) != i + 1)
                if (fi_trywait(fabric, counters, 1) == 0)
                    NEED(poll(&counter, 1, -1) != 1);
            expect(rx, in);
        }
        if (!is_child)
            POST(fi_tsend(ep, out, length, NULL, peer, i, out));
        if (wait_obj == FI_WAIT_FD)
            expect(tx, out);
        else
            sleep_for(tx, out);
    }
    free(in);
    free(out);
    meet();
}

enum { ROOMS = 600, ROOM = 4096 };

static void *sleeper_for_room(void *bytes)
{
    atomic_store(&sleeper_thread, (int) gettid());
    for (int i = 0; i < ROOMS; i++)
        sleep_for(tx, bytes);
    return NULL;
}

/* Who sleeps until there is room for what it sends does sleep, and is woken by who makes room. Under valgrind there is no
   pidfd_open, without which it has to look after its peer now and then. */
static void room(void)
{
    unsigned char *bytes = calloc(ROOMS, ROOM);
    say_and_hear();
    if (!is_child) {
        int pidfd = (int) syscall(SYS_pidfd_open, getpid(), 0);
        pthread_t thread;
        for (int i = 0; i < ROOMS; i++)
            NEED(fi_tsend(ep, bytes + i * ROOM, ROOM, NULL, peer, i, bytes));
        NEED(pthread_create(&thread, NULL, sleeper_for_room, bytes));
        while (atomic_load(&sleeper_thread) == 0)
            nap();
        if (pidfd >= 0) {
            is_asleep(sleeper_thread);
            close(pidfd);
        }
        meet();
        NEED(pthread_join(thread, NULL));
    } else {
        meet();
        for (int i = 0; i < ROOMS; i++) {
            POST(fi_trecv(ep, bytes + i * ROOM, ROOM, NULL, FI_ADDR_UNSPEC, i, 0, bytes));
            expect(rx, bytes);
        }
    }
    meet();
    free(bytes);
}

/* What has ended comes, though its sender calls no more: nothing of it is in that process. The kernels of the nodes hold less
   than a message. */
static void gone(void)
{
    enum { N = 40, LENGTH = 60000 };
    unsigned char *bytes = calloc(1, LENGTH);
    say_and_hear();
    for (int i = 0; i < N; i++) {
        if (!is_child) {
            /* At once, and behind another one. */
            for (int each = 0; each <= i % 2; each++)
                NEED(fi_tsend(ep, bytes, LENGTH, NULL, peer, i, bytes));
            for (int each = 0; each <= i % 2; each++)
                sleep_for(tx, bytes);
        } else {
            for (int each = 0; each <= i % 2; each++) {
                POST(fi_trecv(ep, bytes, LENGTH, NULL, FI_ADDR_UNSPEC, i, 0, bytes));
                expect(rx, bytes);
            }
        }
        meet();
    }
    free(bytes);
}

/* Who sleeps for a process that ends is told so. */
static void death(void)
{
    static unsigned char bytes[1 << 20];
    say_and_hear();
    if (is_child) {
        meet();
        for (;;)
            pause();
    }
    POST(fi_tsend(ep, bytes, sizeof bytes, NULL, peer, 9, bytes));
    meet();
    NEED(kill(child, SIGKILL));
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    IS(fi_cq_sread(tx, &entry, 1, NULL, -1), -FI_EAVAIL);
    IS(fi_cq_readerr(tx, &failed, 0), 1);
    HOLDS(failed.op_context == bytes);
    int status;
    NEED(waitpid(child, &status, 0) != child);
    HOLDS(WIFSIGNALED(status));
    child = 0;
}

/* Connections are made though the peer computes: what was sent is on its way. */
static void control(void)
{
    uint64_t out = 7, in = 0;
    int thread = helper_of_mine();
    meet();
    if (!is_child) {
        POST(fi_tsend(ep, &out, 8, NULL, peer, 1, &out));
        expect(tx, &out);
        is_asleep(thread);
    }
    meet();
    if (is_child) {
        is_asleep(thread);
        POST(fi_trecv(ep, &in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &in));
        expect(rx, &in);
        IS(in, 7);
    }
}

/* A child of fork(2) has nothing of it, and takes nothing away. */
static void forked(void)
{
    say_and_hear();
    pid_t grandchild = fork();
    NEED(grandchild < 0);
    if (grandchild == 0) {
        uint64_t word = 1;
        struct fi_cq_tagged_entry entry;
        struct fi_cq_err_entry failed = {0};
        struct fid *fids[] = {&rx->fid};
        wrong = 0;
        IS(fi_tsend(ep, &word, 8, NULL, peer, 1, NULL), -FI_EOPBADSTATE);
        IS(fi_trecv(ep, &word, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), -FI_EOPBADSTATE);
        IS(fi_tinject(ep, &word, 8, peer, 1), -FI_EOPBADSTATE);
        IS(fi_cq_read(rx, &entry, 1), -FI_EOPBADSTATE);
        IS(fi_cq_readerr(rx, &failed, 0), -FI_EOPBADSTATE);
        if (wait_obj != FI_WAIT_NONE)
            IS(fi_cq_sread(rx, &entry, 1, NULL, -1), -FI_EOPBADSTATE);
        IS(fi_cntr_read(received), 0);
        IS(fi_cntr_wait(received, 100, -1), -FI_EOPBADSTATE);
        IS(fi_trywait(fabric, fids, 1), -FI_EOPBADSTATE);
        IS(fi_cancel(&ep->fid, NULL), -FI_EOPBADSTATE);
        IS(fi_close(&ep->fid), 0);
        IS(fi_close(&av->fid), 0);
        IS(fi_close(&rx->fid), 0);
        IS(fi_close(&domain->fid), 0);
        IS(fi_close(&fabric->fid), 0);
        /* It may have its own. */
        struct fi_info *hints = wish();
        hints->domain_attr->data_progress = data_progress;
        open_domain(API, hints);
        rx = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
        av = an_av(FI_AV_MAP, 0);
        NEED(fi_endpoint(domain, info, &ep, NULL));
        NEED(fi_ep_bind(ep, &av->fid, 0));
        NEED(fi_ep_bind(ep, &rx->fid, FI_TRANSMIT | FI_RECV));
        NEED(fi_enable(ep));
        char name[48];
        size_t length = 48;
        NEED(fi_getname(&ep->fid, name, &length));
        IS(fi_av_insert(av, name, 1, &peer, 0, NULL), 1);
        static uint64_t in;
        IS(fi_trecv(ep, &in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &in), 0);
        ssize_t taken;
        /* It is taken when there is a connection. */
        while ((taken = fi_tinject(ep, &word, 8, peer, 1)) == -FI_EAGAIN)
            fi_cq_read(rx, NULL, 0);
        IS(taken, 0);
        sleep_for(rx, &in);
        IS(fi_close(&ep->fid), 0);
#ifdef __SANITIZE_ADDRESS__
        /* What its parent has opened is not pointed to any more. */
        _exit(wrong != 0);
#endif
        exit(wrong != 0);
    }
    int status;
    NEED(waitpid(grandchild, &status, 0) != grandchild);
    IS(status, 0);
    say_and_hear();
}

struct talk {
    int number;
    unsigned long bad;
};

/* A thread with tags of its own sends to the peer's and hears from it. Entries are read by whoever comes. */
static void *talk(void *argument)
{
    struct talk *talk = argument;
    for (uint64_t i = 0; i < 1500; i++) {
        uint64_t out = i << 8 | talk->number, in = 0;
        struct fi_cq_tagged_entry entry;
        while (fi_tinject(ep, &out, 8, peer, talk->number) == -FI_EAGAIN)
            fi_cq_read(rx, NULL, 0);
        while (fi_trecv(ep, &in, 8, NULL, FI_ADDR_UNSPEC, talk->number, 0, &in) == -FI_EAGAIN)
            fi_cq_read(rx, NULL, 0);
        while (__atomic_load_n(&in, __ATOMIC_ACQUIRE) == 0)
            fi_cq_read(rx, &entry, 1);
        talk->bad += in != out;
    }
    return NULL;
}

/* Four threads at an endpoint, and the helper. */
static void threads(void)
{
    enum { N = 4 };
    pthread_t each[N];
    struct talk talks[N];
    for (int i = 0; i < N; i++) {
        talks[i] = (struct talk){.number = i + 1};
        NEED(pthread_create(&each[i], NULL, talk, &talks[i]));
    }
    for (int i = 0; i < N; i++) {
        NEED(pthread_join(each[i], NULL));
        IS(talks[i].bad, 0);
    }
    meet();
}

/* Four threads with an endpoint and queues each (FI_THREAD_ENDPOINT, FI_THREAD_COMPLETION): each sends to itself. */
static void *alone(void *argument)
{
    struct talk *talk = argument;
    struct fid_ep *own;
    struct fid_cq *done = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
    struct fid_av *names = an_av(FI_AV_MAP, 0);
    char name[48];
    size_t length = 48;
    fi_addr_t self;
    talk->bad = fi_endpoint(domain, info, &own, NULL) || fi_ep_bind(own, &names->fid, 0) ||
                fi_ep_bind(own, &done->fid, FI_TRANSMIT | FI_RECV) || fi_enable(own) ||
                fi_getname(&own->fid, name, &length) || fi_av_insert(names, name, 1, &self, 0, NULL) != 1;
    for (uint64_t i = 0; i < 1500 && !talk->bad; i++) {
        uint64_t in = 0;
        struct fi_cq_tagged_entry entry;
        while (fi_trecv(own, &in, 8, NULL, FI_ADDR_UNSPEC, i, 0, &in) == -FI_EAGAIN)
            fi_cq_read(done, NULL, 0);
        while (fi_tsend(own, &i, 8, NULL, self, i, &i) == -FI_EAGAIN)
            fi_cq_read(done, NULL, 0);
        for (int n = 0; n < 2 && !talk->bad;) {
            ssize_t read = fi_cq_read(done, &entry, 1);
            talk->bad += read != 1 && read != -FI_EAGAIN;
            n += read == 1;
        }
        talk->bad += in != i;
    }
    talk->bad += fi_close(&own->fid) != 0;
    talk->bad += fi_close(&names->fid) != 0;
    talk->bad += fi_close(&done->fid) != 0;
    return NULL;
}

static void endpoints(void)
{
    enum { N = 4 };
    pthread_t each[N];
    struct talk talks[N] = {0};
    for (int i = 0; i < N; i++)
        NEED(pthread_create(&each[i], NULL, alone, &talks[i]));
    for (int i = 0; i < N; i++) {
        NEED(pthread_join(each[i], NULL));
        IS(talks[i].bad, 0);
    }
    meet();
}

int main(int argc, char **argv)
{
    static const struct one_case all[] = {
        {"computes", computes}, {"queued", queued}, {"starved", starved}, {"idle", idle}, {"manual", manual},
        {"sleeps", sleeps}, {"wakes", wakes}, {"room", room}, {"gone", gone}, {"death", death}, {"control", control},
        {"forked", forked}, {"threads", threads}, {"endpoints", endpoints},
    };
    if (argc < 2)
        return 2;
    setbuf(stdout, NULL);
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "manual") == 0)
            data_progress = control_progress = FI_PROGRESS_MANUAL;
        else if (strcmp(argv[i], "connections") == 0)
            data_progress = FI_PROGRESS_MANUAL;
        else if (strcmp(argv[i], "descriptors") == 0)
            wait_obj = FI_WAIT_FD;
        else
            threading = (enum fi_threading) atoi(argv[i]);
    }
    begin();
    RUN(all, argv[1]);
    if (child == 0 && !is_child)
        return verdict();
    return end();
}
