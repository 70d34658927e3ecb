/* The byte transports in bad company: what else is in a process that uses them.
 *
 *     company TRANSPORT CASE
 */
#include "side.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

enum { TAG = 7 };

/* What has come and gone, and what is to. */
static long received, ended, wrong, target, owed;

static void count(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context, (void)module, (void)from, (void)tag;
    wrong += !is_filled(bytes, length, length);
    __atomic_add_fetch(&received, 1, __ATOMIC_RELAXED);
}

static void over(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)context, (void)module, (void)to;
    if (status != 0) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&ended, 1, __ATOMIC_RELAXED);
}

static void send_one(size_t length)
{
    hawser_fragment fragment;
    void *memory;
    IS(0, side.table->alloc(side.module, length, &fragment, &memory));
    fill(memory, length, 0, length);
    for (;;) {
        int32_t code = side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, over, NULL);
        if (code == 0) return;
        IS(HAWSER_ERR_AGAIN, code);
        CHECK(side.btl->progress() >= 0);
        sched_yield();
    }
}

/* So many messages to the other process, and as many from it. */
static void talk(long messages)
{
    target += messages, owed += messages;
    for (long at = 0; at < messages; at++) send_one((size_t)(at * 331) % side.limits.max_send);
    UNTIL(__atomic_load_n(&received, __ATOMIC_RELAXED) >= target && __atomic_load_n(&ended, __ATOMIC_RELAXED) >= owed);
    CHECK(wrong == 0);
}

static void begin_to_talk(void)
{
    start();
    IS(0, side.table->register_receive(side.module, TAG, count, NULL));
    join();
}

/* Without standard files: what hawser opens gets their numbers, and what it says must not get there. */
static void case_closed(void)
{
    int files[3];
    two.pair.wire = fcntl(two.pair.wire, F_DUPFD, 100);
    CHECK(two.pair.wire >= 100);
    two.host.log = NULL;
    two.host.verbose = 1;
    for (int at = 0; at < 3; at++) CHECK((files[at] = fcntl(at, F_DUPFD, 200)) >= 200);
    for (int at = 0; at < 3; at++) close(at);
    begin_to_talk();
    struct stat what;
    CHECK(fstat(0, &what) == 0);
    talk(100);
    IS(0, side.table->dump(side.module, side.to));
    IS(0, side.table->dump(side.module, (hawser_endpoint){0}));
    talk(100);
    leave();
    /* A number that a library below still uses, a thread of libibverbs' say, stays with it. */
    for (int at = 0; at < 3; at++) {
        int got = fcntl(files[at], F_DUPFD, at);
        if (got != at) close(got);
    }
    CHECK((stderr = fdopen(files[2], "w")) != NULL && (stdout = fdopen(files[1], "w")) != NULL);
}

/* A child of fork(2): every function refuses what its parent has opened. */
static void refuse(void)
{
    hawser_fragment fragment;
    hawser_btl module;
    void *memory;
    size_t number;
    uint64_t name;
    IS(HAWSER_ERR_STATE, side.btl->open(&two.host));
    IS(HAWSER_ERR_STATE, side.btl->register_parameters());
    IS(HAWSER_ERR_STATE, side.btl->init(&number));
    IS(HAWSER_ERR_STATE, side.btl->module_at(0, &module));
    IS(HAWSER_ERR_STATE, side.btl->progress());
    IS(HAWSER_ERR_STATE, side.table->limits(side.module, &side.limits));
    IS(HAWSER_ERR_STATE, side.table->peer_name(side.module, side.to, &name));
    IS(HAWSER_ERR_STATE, side.table->alloc(side.module, 8, &fragment, &memory));
    IS(HAWSER_ERR_STATE, side.table->sendi(side.module, side.to, TAG, "word", 4, NULL, 0));
    IS(HAWSER_ERR_STATE, side.table->del_peers(side.module, 1, &side.to));
    IS(HAWSER_ERR_STATE, side.table->flush(side.module, side.to, 0));
    IS(HAWSER_ERR_STATE, side.table->finalize(side.module));
    IS(HAWSER_ERR_STATE, side.btl->close());
}

/* A thread that is always in some function of the component when its process forks, or opens and closes another. */
static int is_over;
static const hawser_btl_component *another;

static void *look(void *unused)
{
    hawser_btl module;
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        side.btl->module_at(0, &module);
        IS(0, another->open(&two.host));
        IS(0, another->close());
    }
    return unused;
}

/* A child waits for nothing that such a thread had when it was made. */
static void open_in_child(void)
{
    IS(HAWSER_ERR_STATE, side.btl->open(&two.host));
    /* That thread may have had it open then, or have been about to. */
    int32_t code = another->open(&two.host);
    if (code == 0) IS(0, another->close());
    _exit(code != 0 && code != HAWSER_ERR_STATE && code != HAWSER_ERR_BUSY);
}

/* A child ends, in either way, and its parent and the peer go on. */
static void case_forked(void)
{
    begin_to_talk();
    another = hawser_btl_find(strcmp(side.btl->name, "smcuda") == 0 ? "usnic" : "smcuda");
    pthread_t looker;
    CHECK(pthread_create(&looker, NULL, look, NULL) == 0);
    for (int way = 0; way < 300; way++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) open_in_child();
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(looker, NULL) == 0);
    for (int way = 0; way < 3; way++) {
        talk(100);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            if (way > 0) refuse();
#ifdef __SANITIZE_ADDRESS__
            /* What a thread of the parent's has is out of reach here, and counts as lost. */
            _exit(0);
#endif
            if (way == 1) _exit(0);
            exit(0);
        }
        int status = -1;
        UNTIL(waitpid(child, &status, WNOHANG) == child);
        CHECK(status == 0);
        meet();
    }
    leave();
    /* A child of whoever has closed all begins anew. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        IS(0, side.btl->open(&two.host));
        IS(0, side.btl->close());
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    IS(0, side.btl->open(&two.host));
    IS(0, side.btl->close());
}

/* What ends in whatever way. */
static void in_any_way(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)context, (void)module, (void)to, (void)status;
    ended++;
}

/* Sends so many that nobody receives, as far as they are taken: how many. */
static long send_in_vain(long messages, hawser_completed callback)
{
    for (long at = 0; at < messages; at++) {
        hawser_fragment fragment;
        void *memory;
        IS(0, side.table->alloc(side.module, 1000, &fragment, &memory));
        memset(memory, 0, 1000);
        if (side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, callback, NULL) != 0) {
            IS(0, side.table->free(side.module, fragment));
            return at;
        }
    }
    return messages;
}

/* A callback makes a child, which returns from it: the call that it was in ends there, and what the parent has opened is left
 * alone. */
static pid_t made;

static void make_child(void)
{
    if (made < 0) CHECK((made = fork()) >= 0);
}

static void count_in_two(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    count(context, module, from, tag, bytes, length);
    make_child();
}

static void over_in_two(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    in_any_way(context, module, to, status);
    make_child();
}

static void await_child(void)
{
    int status = -1;
    CHECK(made > 0 && waitpid(made, &status, 0) == made && status == 0);
}

static void case_returned(void)
{
    enum { MESSAGES = 50 };
    made = -1;
    start();
    IS(0, side.table->register_receive(side.module, TAG, count_in_two, NULL));
    join();
    two.pair.progress = NULL;
    meet();
    if (me == 0) {
        for (int at = 0; at < MESSAGES; at++) send_one(100);
        UNTIL(ended == MESSAGES);
    }
    while (me == 1 && received < MESSAGES) {
        int32_t code = side.btl->progress();
        if (made == 0) {
            IS(HAWSER_ERR_STATE, code);
            CHECK(received == 1);
            refuse();
            _exit(0);
        }
        CHECK(code >= 0);
    }
    if (me == 1) await_child();
    two.pair.progress = side.btl->progress;
    meet();
    two.pair.progress = NULL;
    if (me == 0) {
        /* The last calls to the caller, while the other process makes no progress. */
        long before = ended, taken = send_in_vain(2000, over_in_two);
        int32_t code = side.btl->close();
        if (made == 0) _exit(code != HAWSER_ERR_STATE || ended != before + 1);
        IS(0, code);
        await_child();
        CHECK(ended == before + taken);
    }
    meet();
    if (me == 1) IS(0, side.btl->close());
}

/* A profiler's signals, in every call; what they interrupt is not begun again by itself. */
static volatile long ticks;

static void tick(int number)
{
    (void)number;
    ticks++;
}

static void profile(int is_on)
{
    struct itimerval timer = {{0, is_on ? 500 : 0}, {0, is_on ? 500 : 0}};
    CHECK(setitimer(ITIMER_PROF, &timer, NULL) == 0);
}

static void case_sampled(void)
{
    struct sigaction action = {.sa_handler = tick};
    CHECK(sigaction(SIGPROF, &action, NULL) == 0);
    /* Until there were some in each part; examples/pair.h is spared. */
    long before = 0;
    for (int life = 0; life < 2 || ticks < 50; life++) {
        profile(1);
        start();
        profile(0);
        IS(0, side.table->register_receive(side.module, TAG, count, NULL));
        join();
        profile(1);
        talk(2000);
        profile(0);
        meet();
        two.pair.progress = NULL;
        profile(1);
        IS(0, side.btl->close());
        profile(0);
        long theirs = 0;
        before = ticks;
        CHECK(pair_swap(&two.pair, &before, &theirs, sizeof theirs) == 0);
        /* Both have had enough, or neither. */
        ticks = before < theirs ? before : theirs;
    }
}

/* Threads with little stack. */
static void *on_little(void *what)
{
    long at = 0;
    if (what == NULL) {
        start();
    } else if (what == &side) {
        IS(0, side.btl->close());
    } else {
        for (; at < 50; at++) send_one((size_t)(at * 331) % side.limits.max_send);
        CHECK(side.btl->progress() >= 0);
        IS(0, side.table->dump(side.module, side.to));
    }
    return NULL;
}

static void with_little(void *what)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 64 << 10) == 0);
    CHECK(pthread_create(&thread, &attributes, on_little, what) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && pthread_attr_destroy(&attributes) == 0);
}

static void case_stacks(void)
{
    with_little(NULL);
    IS(0, side.table->register_receive(side.module, TAG, count, NULL));
    join();
    for (int at = 0; at < 4; at++) with_little(&two);
    UNTIL(received == 200 && ended == 200);
    CHECK(wrong == 0);
    meet();
    two.pair.progress = NULL;
    meet();
    with_little(&side);
}

/* Memory that nobody can touch, here or there. */
static void case_untouchable(void)
{
    enum { BYTES = 1 << 20 };
    static unsigned char mine[BYTES];
    begin_to_talk();
    unsigned char *open = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *hole = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(open != MAP_FAILED && hole != MAP_FAILED);
    hawser_memory memory;
    hawser_remote remote, theirs;
    IS(0, side.table->register_memory(side.module, open, BYTES, HAWSER_READ | HAWSER_WRITE, &memory));
    IS(0, side.table->memory_key(side.module, memory, &remote));
    CHECK(pair_swap(&two.pair, &remote, &theirs, sizeof remote) == 0);
    IS(HAWSER_ERR_SYSTEM, side.table->get(side.module, side.to, hole, 70000, &theirs, 0, over, NULL));
    IS(HAWSER_ERR_SYSTEM, side.table->put(side.module, side.to, hole, 70000, &theirs, 0, over, NULL));
    meet();
    CHECK(munmap(open, BYTES) == 0);
    meet();
    IS(HAWSER_ERR_SYSTEM, side.table->get(side.module, side.to, mine, 70000, &theirs, 0, over, NULL));
    IS(HAWSER_ERR_SYSTEM, side.table->put(side.module, side.to, mine, 70000, &theirs, 0, over, NULL));
    talk(100);
    IS(0, side.table->deregister_memory(side.module, memory));
    leave();
}

/* hawser.h says a quarter of a second; a machine that does much else gets forty times as long. */
#define SOON(call)                                                                               \
    do {                                                                                         \
        struct timespec soon_since, soon_now;                                                    \
        CHECK(clock_gettime(CLOCK_MONOTONIC, &soon_since) == 0);                                 \
        IS(0, call);                                                                             \
        CHECK(clock_gettime(CLOCK_MONOTONIC, &soon_now) == 0 && soon_now.tv_sec - soon_since.tv_sec < 10); \
    } while (0)

/* Who is being deleted is not added: what would be added would end with it. */
static int is_deleting;

static void add_again(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    in_any_way(context, module, to, status);
    hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = "here"};
    hawser_endpoint found = {0};
    if (is_deleting) IS(HAWSER_ERR_BUSY, side.table->add_peers(module, 1, &peer, &found));
    CHECK(found.id == 0);
}

/* The other process makes no progress any more, and nobody waits for it. */
static void case_deaf(void)
{
    begin_to_talk();
    talk(10);
    meet();
    two.pair.progress = NULL;
    if (me == 1) {
        meet();
        IS(0, side.btl->close());
        return;
    }
    long before = ended, taken = send_in_vain(2000, add_again);
    is_deleting = 1;
    SOON(side.table->del_peers(side.module, 1, &side.to));
    is_deleting = 0;
    SOON(side.btl->close());
    CHECK(ended == before + taken);
    meet();
}

/* There are no descriptors left when the peers are added: they are reached, or not, and nobody waits. */
static void case_poor(void)
{
    start();
    IS(0, side.table->register_receive(side.module, TAG, count, NULL));
    meet();
    struct rlimit limit, none;
    int next = dup(two.pair.wire);
    CHECK(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit, none.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = "here"};
    IS(0, side.table->add_peers(side.module, 1, &peer, &side.to));
    long taken = 0;
    if (side.to.id != 0) {
        taken = send_in_vain(10, in_any_way);
        int32_t code = side.table->flush(side.module, side.to, 50);
        CHECK(code == 0 || code == HAWSER_ERR_TIMEOUT);
        SOON(side.table->del_peers(side.module, 1, &side.to));
    }
    SOON(side.btl->close());
    CHECK(ended == taken && setrlimit(RLIMIT_NOFILE, &limit) == 0);
    meet();
}

/* Lines of statistics go where the caller's lines go. */
static long finals;

static void log_finals(void *context, uint32_t level, const char *line)
{
    logged(context, level, line);
    finals += level == HAWSER_LOG_INFO && strncmp(line, "btl_usnic statistics final: ", 28) == 0;
}

static const char *with_statistics(const char *name)
{
    return strcmp(name, "btl_usnic_stats") == 0 ? "60" : parameter(name);
}

static void case_figures(void)
{
    two.pair.parameter = with_statistics;
    two.host.log = log_finals;
    begin_to_talk();
    talk(10);
    leave();
    CHECK(finals == (long)side.count);
}

static const struct one_case cases[] = {
    {"closed", case_closed}, {"forked", case_forked}, {"returned", case_returned}, {"sampled", case_sampled},
    {"stacks", case_stacks}, {"untouchable", case_untouchable}, {"deaf", case_deaf}, {"poor", case_poor}, {"figures", case_figures},
};

MAIN(cases)
