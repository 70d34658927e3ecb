/* Two processes over the byte transports, by the C functions.
 *
 *     traffic TRANSPORT CASE
 */
#include "side.h"

#include <dirent.h>
#include <pthread.h>

enum { TAG = 7, ANSWER = 8, UNHEARD = 9 };

/* What has come. */
static long received, answered, ended, failed, wrong;
static char has_come[256];

/* Of messages, by their numbers, over and over. */
static size_t lengths[64];
static size_t length_count;

static void choose_lengths(void)
{
    static const size_t some[] = {0, 1, 7, 8, 9, 31, 32, 33, 34, 35, 63, 64, 65, 127, 511, 512, 513, 1023, 1024, 1025,
                                  4087, 4088, 4095, 4096, 4097, 8191, 8192, 16383, 16384, 16385, 20000, 32767, 32768};
    for (size_t at = 0; at < sizeof some / sizeof *some; at++) {
        if (some[at] <= side.limits.max_send) lengths[length_count++] = some[at];
    }
    lengths[length_count++] = side.limits.max_send - 1;
    lengths[length_count++] = side.limits.max_send;
}

/* Messages may overtake each other: each number that has not come yet may be this one's. */
static void take(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    CHECK(context == &received && module.id == side.module.id && from.id == side.to.id && tag == TAG);
    for (size_t number = 0; number < 4 * length_count; number++) {
        if (has_come[number] || lengths[number % length_count] != length || !is_filled(bytes, number, length)) continue;
        has_come[number] = 1;
        received++;
        return;
    }
    wrong++;
}

static void over(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    CHECK(context == &ended && module.id == side.module.id && to.id == side.to.id);
    ended++;
    failed += status != 0;
}

/* Sends a fragment of the caller's, with a callback or without. Returns how many callbacks are to come. */
static int send_it(hawser_fragment fragment, uint8_t tag, uint32_t flags, int called)
{
    for (;;) {
        int32_t code = side.table->send(side.module, side.to, fragment, tag, flags, called ? over : NULL, &ended);
        if (code == HAWSER_ERR_AGAIN) {
            CHECK(side.btl->progress() >= 0);
            sched_yield();
            continue;
        }
        CHECK(code == HAWSER_SUCCESS || code == HAWSER_DONE);
        CHECK(code == HAWSER_SUCCESS || !(flags & HAWSER_AWAITED));
        IS(HAWSER_ERR_STALE, side.table->free(side.module, fragment));
        return called && code == HAWSER_SUCCESS;
    }
}

static uint64_t unheard(void)
{
    uint64_t value = 0;
    IS(0, side.table->counter(side.module, "num_unheard", &value));
    return value;
}

static void case_lengths(void)
{
    static unsigned char data[1 << 20];
    long owed = 0;
    start();
    choose_lengths();
    IS(0, side.table->register_receive(side.module, TAG, take, &received));
    join();
    size_t number = 0;
    for (int way = 0; way < 4; way++) {
        for (size_t at = 0; at < length_count; at++, number++) {
            size_t length = lengths[at], header = way == 1 ? length / 3 : 0;
            hawser_fragment fragment;
            void *memory;
            if (way == 1) {
                /* Header and borrowed data: borrowed until it has ended. */
                fill(data, number, header, length - header);
                IS(0, side.table->prepare_src(side.module, header, data, length - header, &fragment, &memory));
                fill(memory, number, 0, header);
            } else {
                IS(0, side.table->alloc(side.module, length, &fragment, &memory));
                fill(memory, number, 0, length);
            }
            uint32_t flags = way == 3 ? 0 : way < 2 ? HAWSER_AWAITED : 0;
            owed += send_it(fragment, TAG, flags, way != 3);
            if (way == 1) UNTIL(ended == owed);
        }
    }
    UNTIL(received == (long)number && ended == owed);
    CHECK(wrong == 0 && failed == 0);
    /* What nobody wants is dropped. */
    hawser_fragment fragment;
    void *memory;
    IS(0, side.table->alloc(side.module, 8, &fragment, &memory));
    memset(memory, 0, 8);
    owed += send_it(fragment, UNHEARD, HAWSER_AWAITED, 1);
    UNTIL(ended == owed);
    IS(0, side.table->flush(side.module, side.to, 60000));
    UNTIL(unheard() == 1);
    leave();
}

static void case_sendi(void)
{
    static unsigned char data[1 << 20];
    start();
    choose_lengths();
    IS(0, side.table->register_receive(side.module, TAG, take, &received));
    join();
    for (size_t number = 0; number < 4 * length_count; number++) {
        size_t length = lengths[number % length_count], header = number % 3 == 0 ? 0 : length / 2;
        fill(data, number, 0, length);
        for (;;) {
            int32_t code = side.table->sendi(side.module, side.to, TAG, data, header, data + header, length - header);
            if (code == 0) break;
            CHECK(code == HAWSER_ERR_AGAIN);
            CHECK(side.btl->progress() >= 0);
        }
        /* It is ours again. */
        memset(data, 0xEE, length);
        /* Without a word about order: urgent ones may overtake. */
        UNTIL(received > (long)number);
        meet();
    }
    CHECK(wrong == 0);
    IS(0, side.table->flush(side.module, (hawser_endpoint){0}, 60000));
    leave();
}

static void count(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)module, (void)from, (void)tag;
    uint64_t number;
    CHECK(length == 64);
    memcpy(&number, bytes, sizeof number);
    *(uint64_t *)context += number;
    received++;
}

/* Many on their way, in both directions at once. */
static void case_many(void)
{
    uint64_t sum = 0, most = 20000;
    long owed = 0;
    start();
    IS(0, side.table->register_receive(side.module, TAG, count, &sum));
    join();
    for (uint64_t number = 0; number < most; number++) {
        hawser_fragment fragment;
        void *memory;
        IS(0, side.table->alloc(side.module, 64, &fragment, &memory));
        memset(memory, 0, 64);
        memcpy(memory, &number, sizeof number);
        owed += send_it(fragment, TAG, number % 3 == 0 ? HAWSER_AWAITED : 0, number % 3 != 1);
    }
    UNTIL(received == (long)most && ended == owed);
    CHECK(failed == 0 && sum == most * (most - 1) / 2);
    leave();
}

/* From callbacks: each message is answered where it comes, progress nests, and nothing can be ended. */
static int depth;

static void answer(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context;
    CHECK(tag == TAG && length == 64);
    hawser_fragment fragment;
    void *memory;
    IS(0, side.table->alloc(module, length, &fragment, &memory));
    memcpy(memory, bytes, length);
    received++;
    IS(0, side.table->send(module, from, fragment, ANSWER, HAWSER_AWAITED, over, &ended));
    IS(HAWSER_ERR_BUSY, side.table->finalize(module));
    IS(HAWSER_ERR_BUSY, side.btl->close());
    if (depth < 5) {
        depth++;
        CHECK(side.btl->progress() >= 0);
        CHECK(side.table->flush(module, from, 0) <= 0);
        depth--;
    }
}

static void hear_answer(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context, (void)module, (void)from, (void)bytes;
    CHECK(tag == ANSWER && length == 64);
    answered++;
}

static long relayed;

static void relay(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)context;
    IS(0, status);
    IS(HAWSER_ERR_BUSY, side.table->finalize(module));
    IS(HAWSER_ERR_BUSY, side.btl->close());
    IS(HAWSER_ERR_STATE, side.btl->open(&two.host));
    if (++relayed >= 2000) return;
    hawser_fragment fragment;
    void *memory;
    IS(0, side.table->alloc(module, 64, &fragment, &memory));
    memset(memory, 1, 64);
    IS(0, side.table->send(module, to, fragment, TAG, HAWSER_AWAITED, relay, NULL));
}

static void case_reentry(void)
{
    start();
    IS(0, side.table->register_receive(side.module, TAG, answer, NULL));
    IS(0, side.table->register_receive(side.module, ANSWER, hear_answer, NULL));
    join();
    for (int chain = 0; chain < 4; chain++) {
        hawser_fragment fragment;
        void *memory;
        IS(0, side.table->alloc(side.module, 64, &fragment, &memory));
        memset(memory, 1, 64);
        IS(0, side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, relay, NULL));
    }
    /* Each of the other chains ends one behind the limit. */
    UNTIL(relayed == 2003 && received == 2003 && answered == 2003);
    IS(0, side.table->flush(side.module, side.to, 60000));
    CHECK(ended == 2003 && failed == 0);
    leave();
}

static long refused;

/* Each is called in the progress of the one before it, as deep as that goes. */
static void dig(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context, (void)module, (void)from, (void)tag, (void)bytes, (void)length;
    received++;
    int32_t code = side.btl->progress();
    CHECK(code >= 0 || code == HAWSER_ERR_BUSY);
    refused += code < 0;
}

/* As many messages as there is room for wait when progress is made, and every callback makes some: the stack holds. */
static void case_nested(void)
{
    long sent = 0, theirs = 0;
    start();
    IS(0, side.table->register_receive(side.module, TAG, dig, NULL));
    join();
    two.pair.progress = NULL;
    meet();
    int32_t code = 0;
    while (me == 0 && sent < 20000 && (code = side.table->sendi(side.module, side.to, TAG, "word", 4, NULL, 0)) == 0) sent++;
    CHECK(code == 0 || code == HAWSER_ERR_AGAIN);
    CHECK(pair_swap(&two.pair, &sent, &theirs, sizeof sent) == 0);
    two.pair.progress = side.btl->progress;
    UNTIL(received == theirs);
    IS(0, side.table->flush(side.module, side.to, 60000));
    /* Datagrams come a few at a time, whoever waits. */
    CHECK(me == 0 || strcmp(side.btl->name, "smcuda") != 0 || refused > 0);
    leave();
}

/* A PUT or GET has begun, or is over: then it has no callback. */
static void taken(int32_t code)
{
    CHECK(code == HAWSER_SUCCESS || code == HAWSER_DONE);
    if (code == HAWSER_DONE) ended++;
}

/* PUT and GET. */
static void case_transfers(void)
{
    enum { BYTES = 3 << 20 };
    static unsigned char mine[BYTES], copy[BYTES];
    start();
    join();
    fill(mine, (size_t)me, 0, BYTES);
    hawser_memory whole, half;
    hawser_remote remotes[2], theirs[2];
    IS(0, side.table->register_memory(side.module, mine, BYTES, HAWSER_READ, &whole));
    static unsigned char room[BYTES];
    IS(0, side.table->register_memory(side.module, room, BYTES / 2, HAWSER_READ | HAWSER_WRITE, &half));
    IS(0, side.table->memory_key(side.module, whole, &remotes[0]));
    IS(0, side.table->memory_key(side.module, half, &remotes[1]));
    CHECK(pair_swap(&two.pair, remotes, theirs, sizeof remotes) == 0);
    IS(0, side.table->limits(side.module, &side.limits));
    if ((side.limits.flags & HAWSER_CAN_GET) == 0) {
        /* A sandbox that does not let processes read each other. */
        IS(HAWSER_ERR_UNSUPPORTED, side.table->get(side.module, side.to, copy, 8, &theirs[0], 0, over, &ended));
        fprintf(stderr, "processes may not read each other here\n");
        exit(1);
    }
    static const size_t sizes[] = {0, 1, 100, 4096, 65536, 100001, BYTES / 2};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        size_t size = sizes[at], offset = at * 1000;
        if (offset + size > BYTES) offset = 0;
        memset(copy, 0xAA, BYTES);
        ended = 0;
        taken(side.table->get(side.module, side.to, copy, size, &theirs[0], offset, over, &ended));
        UNTIL(ended == 1);
        CHECK(failed == 0);
        for (size_t byte = 0; byte < size; byte++) CHECK(copy[byte] == pattern((size_t)!me, offset + byte));
        CHECK(copy[size] == 0xAA);
    }
    ended = 0;
    taken(side.table->put(side.module, side.to, mine, BYTES / 2 - 8, &theirs[1], 8, over, &ended));
    int32_t put = side.table->put(side.module, side.to, mine, 8, &theirs[1], 0, NULL, NULL);
    CHECK(put == HAWSER_SUCCESS || put == HAWSER_DONE);
    IS(0, side.table->flush(side.module, side.to, 60000));
    CHECK(ended == 1 && failed == 0);
    meet();
    for (size_t byte = 0; byte < BYTES / 2; byte++) {
        CHECK(room[byte] == pattern((size_t)!me, byte < 8 ? byte : byte - 8));
    }
    /* What must not be. */
    IS(HAWSER_ERR_ACCESS, side.table->put(side.module, side.to, mine, 8, &theirs[0], 0, over, &ended));
    IS(HAWSER_ERR_TOO_LONG, side.table->get(side.module, side.to, copy, 9, &theirs[0], BYTES - 8, over, &ended));
    IS(HAWSER_ERR_TOO_LONG, side.table->get(side.module, side.to, copy, 8, &theirs[0], UINT64_MAX, over, &ended));
    IS(HAWSER_ERR_ARGUMENT, side.table->get(side.module, side.to, NULL, 8, &theirs[0], 0, over, &ended));
    IS(HAWSER_ERR_ARGUMENT, side.table->get(side.module, side.to, copy, 8, NULL, 0, over, &ended));
    IS(HAWSER_ERR_ARGUMENT, side.table->put(side.module, side.to, copy, SIZE_MAX, &theirs[1], 0, over, &ended));
    for (size_t byte = 0; byte < sizeof remotes[0].bytes; byte += 5) {
        hawser_remote spoiled = theirs[0];
        spoiled.bytes[byte] ^= 0xA5;
        /* It is refused here, or by the peer, or names what is there: whatever it is, nothing breaks. */
        long before = ended;
        int32_t code = side.table->get(side.module, side.to, copy, 8, &spoiled, 0, over, &ended);
        if (code >= 0) {
            taken(code);
            UNTIL(ended == before + 1);
        }
    }
    CHECK(ended == 1 || failed < ended);
    meet();
    IS(0, side.table->deregister_memory(side.module, whole));
    IS(HAWSER_ERR_STALE, side.table->deregister_memory(side.module, whole));
    IS(HAWSER_ERR_STALE, side.table->memory_key(side.module, whole, &remotes[0]));
    /* The other half ends with the module. */
    leave();
}

static void ignore(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context, (void)module, (void)from, (void)tag, (void)bytes, (void)length;
    received++;
}

/* Entries of a folder of this process's. */
static int entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

/* The process has as many descriptors as before. The stand-in for the RDMA libraries closes those of a connection in its own
 * time, so that there may be some more for a while; then there were as many before. */
static void same_descriptors(int before)
{
    if (strcmp(side.btl->name, "verbs") == 0)
        while (entries("/proc/self/fd") > before) sched_yield();
    else
        CHECK(before == entries("/proc/self/fd"));
}

/* This process's threads, but for the one in which the stand-in for the RDMA libraries does what a device does. */
static int threads_here(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL) continue;
        if (fgets(name, sizeof name, file) != NULL && strcmp(name, "verbs-standin\n") != 0) count++;
        fclose(file);
    }
    closedir(folder);
    return count;
}

/* One life after the other; nothing of an earlier one is anything in a later one. */
static void case_reopen(void)
{
    hawser_btl module = {0};
    hawser_endpoint to = {0};
    hawser_fragment kept = {0};
    int threads = threads_here(), descriptors = 0;
    for (int life = 0; life < 5; life++) {
        void *memory;
        /* The first one makes what the process keeps: the system's random numbers, for example. */
        if (life == 1) descriptors = entries("/proc/self/fd");
        if (life > 1) same_descriptors(descriptors);
        CHECK(threads == threads_here());
        start();
        if (life > 0) {
            uint64_t name;
            CHECK(module.id != side.module.id);
            IS(HAWSER_ERR_STALE, side.table->finalize(module));
            IS(HAWSER_ERR_STALE, side.table->peer_name(side.module, to, &name));
            IS(HAWSER_ERR_STALE, side.table->free(side.module, kept));
        }
        IS(0, side.table->register_receive(side.module, TAG, ignore, NULL));
        received = ended = 0;
        join();
        CHECK(to.id != side.to.id);
        hawser_fragment fragment;
        IS(0, side.table->alloc(side.module, 100, &fragment, &memory));
        memset(memory, life, 100);
        long owed = send_it(fragment, TAG, HAWSER_AWAITED, 1);
        UNTIL(received == 1 && ended == owed);
        /* A fragment that is not sent ends with the module. */
        IS(0, side.table->alloc(side.module, 100, &kept, &memory));
        module = side.module, to = side.to;
        if (life % 2 == 1) {
            meet();
            two.pair.progress = NULL;
            IS(0, side.table->del_peers(side.module, 1, &side.to));
            IS(HAWSER_ERR_STALE, side.table->del_peers(side.module, 1, &side.to));
            for (size_t at = 0; at < side.count; at++) IS(0, side.table->finalize(side.modules[at]));
            IS(HAWSER_ERR_STALE, side.table->finalize(side.module));
            IS(HAWSER_ERR_NOT_FOUND, side.btl->module_at(0, &side.module));
            CHECK(side.btl->progress() == 0);
            IS(0, side.btl->close());
        } else {
            leave();
        }
        IS(HAWSER_ERR_STALE, side.table->finalize(module));
    }
}

static long lost_count;

static void lose(void *context, hawser_btl module, hawser_endpoint peer, uint64_t name)
{
    CHECK(context == &lost_count && module.id == side.module.id && peer.id == side.to.id);
    CHECK(name == pair_name(&two.pair, !me));
    IS(HAWSER_ERR_BUSY, side.table->finalize(module));
    lost_count++;
}

/* The other process is killed. */
static void case_killed(void)
{
    start();
    IS(0, side.table->register_receive(side.module, TAG, ignore, NULL));
    IS(0, side.table->register_error(side.module, lose, &lost_count));
    join();
    hawser_fragment fragment;
    void *memory;
    IS(0, side.table->alloc(side.module, 1000, &fragment, &memory));
    memset(memory, 0, 1000);
    long owed = send_it(fragment, TAG, HAWSER_AWAITED, 1);
    UNTIL(received >= 1 && ended == owed);
    if (me == 1) raise(SIGKILL);
    /* More than its ring holds, so that some wait when it is lost. */
    int32_t code = 0;
    for (int number = 0; number < 2000 && code == 0; number++) {
        IS(0, side.table->alloc(side.module, 1000, &fragment, &memory));
        memset(memory, 0, 1000);
        code = side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, over, &ended);
        owed += code == 0;
    }
    CHECK(code == 0 || code == HAWSER_ERR_UNREACHABLE);
    /* Where the kernel cannot be asked about processes (valgrind), one counts as there until it is waited for. */
    int status, gone = 0;
    UNTIL((gone |= waitpid(two.pair.child, &status, WNOHANG) == two.pair.child) && lost_count == 1 && ended == owed);
    CHECK(WIFSIGNALED(status) && failed > 0 && two.logged > 0);
    IS(0, side.table->alloc(side.module, 8, &fragment, &memory));
    memset(memory, 0, 8);
    IS(HAWSER_ERR_UNREACHABLE, side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, over, &ended));
    /* It is ours again. */
    IS(0, side.table->free(side.module, fragment));
    IS(HAWSER_ERR_UNREACHABLE, side.table->sendi(side.module, side.to, TAG, "a", 1, "b", 1));
    IS(0, side.table->flush(side.module, side.to, 0));
    IS(0, side.table->del_peers(side.module, 1, &side.to));
    for (int pass = 0; pass < 1000; pass++) CHECK(side.btl->progress() >= 0);
    CHECK(lost_count == 1 && ended == owed);
    IS(0, side.btl->close());
    puts("PASS");
    exit(0);
}

/* Whoever is told that a module has ended: every send that was taken, once. */
static void case_finalize(void)
{
    start();
    join();
    long owed = 0;
    hawser_fragment fragment;
    void *memory;
    two.pair.progress = NULL;
    if (me == 0) {
        for (int number = 0; number < 2000; number++) {
            IS(0, side.table->alloc(side.module, 1000, &fragment, &memory));
            memset(memory, 0, 1000);
            IS(0, side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, over, &ended));
            owed++;
        }
        IS(HAWSER_ERR_TIMEOUT, side.table->flush(side.module, side.to, 50));
        IS(0, side.table->finalize(side.module));
        CHECK(ended == owed && failed > 0);
        IS(0, side.btl->close());
        CHECK(ended == owed);
        meet();
    } else {
        /* This one makes no progress meanwhile. */
        meet();
        IS(0, side.btl->close());
    }
}

enum { THREADS = 4, EACH = 2000 };
static long thread_received, thread_ended, open_threads = THREADS;

static void count_atomically(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context, (void)module, (void)from, (void)tag, (void)bytes;
    CHECK(length == 200);
    __atomic_fetch_add(&thread_received, 1, __ATOMIC_RELAXED);
}

static void end_atomically(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)context, (void)module, (void)to;
    IS(0, status);
    __atomic_fetch_add(&thread_ended, 1, __ATOMIC_RELAXED);
}

static void *work(void *argument)
{
    for (int number = 0; number < EACH; number++) {
        hawser_fragment fragment;
        void *memory;
        IS(0, side.table->alloc(side.module, 200, &fragment, &memory));
        memset(memory, number, 200);
        int32_t code;
        do {
            code = side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, end_atomically, NULL);
            CHECK(side.btl->progress() >= 0);
        } while (code == HAWSER_ERR_AGAIN);
        IS(0, code);
    }
    __atomic_fetch_sub(&open_threads, 1, __ATOMIC_RELAXED);
    return argument;
}

/* All threads send and make progress; ending fails while one is inside, or works: never anything else. */
static void case_threads(void)
{
    pthread_t threads[THREADS];
    start();
    IS(0, side.table->register_receive(side.module, TAG, count_atomically, NULL));
    join();
    for (int at = 0; at < THREADS; at++) CHECK(pthread_create(&threads[at], NULL, work, NULL) == 0);
    UNTIL(__atomic_load_n(&open_threads, __ATOMIC_RELAXED) == 0 &&
          __atomic_load_n(&thread_received, __ATOMIC_RELAXED) == THREADS * EACH &&
          __atomic_load_n(&thread_ended, __ATOMIC_RELAXED) == THREADS * EACH);
    for (int at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    leave();
}

static const struct one_case cases[] = {
    {"lengths", case_lengths}, {"sendi", case_sendi},   {"many", case_many},         {"reentry", case_reentry}, {"nested", case_nested}, {"transfers", case_transfers},
    {"reopen", case_reopen},   {"killed", case_killed}, {"finalize", case_finalize}, {"threads", case_threads},
};

MAIN(cases)
