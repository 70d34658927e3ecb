/* Several threads at once, as MPI_THREAD_MULTIPLE brings them: they send, receive, allocate, free, put and
 * get, register, read counters and ask for dumps, all at the same time. */
#include "btl.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4 };
static const uint32_t CALLED = MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
static struct btl btl;
static uint64_t each;
static _Atomic bool stop;
static void (*work)(unsigned thread);

static void *run_thread(void *thread)
{
    work((unsigned)(uintptr_t)thread);
    return NULL;
}

static void in_threads(void (*what)(unsigned thread))
{
    pthread_t threads[THREADS];

    work = what;
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_thread, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void send_and_progress(unsigned thread)
{
    for (uint64_t i = 0; i < each; i++) {
        CHECK(btl_post(&btl, i * THREADS + thread, HEADER + (i * 97 + thread) % 12000,
                       i % 3 ? CALLED : i % 2 ? MCA_BTL_DES_FLAGS_BTL_OWNERSHIP : 0) >= 0);
        if (i % 4 == thread)
            host_progress();
    }
    while (books.completed < books.posted)
        host_progress();
}

static void sends(void)
{
    each = is_slow ? 150 : 2000;
    btl_begin(&btl, btl_parameters(), true);
    in_threads(send_and_progress);
    CHECK(books.posted == each * THREADS);
    btl_settle(&btl);
    btl_end(&btl);
}

/* The modules were made for one thread; then a session asks for more. */
static void threads_come_later(void)
{
    each = is_slow ? 150 : 1000;
    btl_begin(&btl, btl_parameters(), false);
    btl_post(&btl, MOST - 1, 1000, CALLED);
    btl_settle(&btl);
    host_set_threads(true);
    in_threads(send_and_progress);
    btl_settle(&btl);
    btl_end(&btl);
}

/* One thread has nothing to do but to let the host make progress, and callbacks send. */
static _Atomic uint64_t next_number;

static void answer(struct btl *to, uint64_t number, size_t size)
{
    uint64_t own = atomic_fetch_add(&next_number, 1);

    (void)size;
    if (own < each)
        CHECK(btl_post(to, own, HEADER + number * 11 % 4000, CALLED) >= 0);
    if (depth < 4)
        host_progress();
}

static void only_progress(unsigned thread)
{
    while (atomic_load(&next_number) < each || books.completed < books.posted) {
        if (thread == 0 && books.completed == books.posted)
            answer(&btl, 1, 0);
        host_progress();
        sched_yield();
    }
}

static void callbacks_in_threads(void)
{
    each = is_slow ? 400 : 1500;
    on_received = answer;
    btl_begin(&btl, btl_parameters(), true);
    in_threads(only_progress);
    btl_settle(&btl);
    btl_end(&btl);
}

/* Everything else at once. */
static unsigned char window[1 << 16];
static struct {
    uint64_t address;
    unsigned char handle[MCA_BTL_REG_HANDLE_MAX_SIZE];
} theirs;
static _Atomic unsigned long started, ended;

static void over(mca_btl_base_module_t *module, endpoint_t endpoint, void *address,
                 struct mca_btl_base_registration_handle_t *handle, void *context, void *data, int status)
{
    (void)endpoint, (void)address, (void)handle, (void)context, (void)data;
    CHECK(module == btl.module && status == OPAL_SUCCESS && !books.closed);
    ended++;
    note_progress();
}

static void everything(unsigned thread)
{
    static unsigned char local[THREADS][1 << 14];
    mca_btl_base_module_t *module = btl.module;

    for (uint64_t i = 0; i < each; i++) {
        unsigned long long values[8];
        uint64_t at = thread * (sizeof local / THREADS);
        size_t size = i * 61 % (sizeof local / THREADS);
        struct mca_btl_base_registration_handle_t *own;
        mca_btl_base_descriptor_t *descriptor;

        CHECK(btl_post(&btl, i * THREADS + thread, HEADER + i % 3000, CALLED) >= 0);
        started++;
        CHECK((i % 2 ? module->btl_put : module->btl_get)(module, btl.peer, local[thread], theirs.address + at,
                                                          NULL, (void *)theirs.handle, size, 0,
                                                          MCA_BTL_NO_ORDER, over, NULL, NULL) >= 0);
        own = module->btl_register_mem(module, btl.peer, local[thread], size, 6);
        descriptor = module->btl_alloc(module, btl.peer, MCA_BTL_NO_ORDER, size, 0);
        CHECK(own != NULL && descriptor != NULL);
        memset(descriptor->des_segments->seg_addr.pval, thread, size);
        CHECK(host_counter(btl_sends(), values, 8) == 1);
        if (i % 16 == 0)
            module->btl_dump(module, i % 32 ? btl.peer : NULL, 1);
        if (i % 32 == thread)
            CHECK(module->btl_flush(module, btl.peer) == OPAL_SUCCESS);
        CHECK(module->btl_free(module, descriptor) == OPAL_SUCCESS);
        CHECK(module->btl_deregister_mem(module, own) == OPAL_SUCCESS);
        host_progress();
    }
    while (books.completed < books.posted || ended < started)
        host_progress();
}

static void everything_at_once(void)
{
    struct mca_btl_base_registration_handle_t *own;
    const void *bytes;
    size_t size;

    each = is_slow ? 60 : 600;
    btl_begin(&btl, btl_parameters(), true);
    theirs.address = (uintptr_t)window;
    own = btl.module->btl_register_mem(btl.module, NULL, window, sizeof window, 6);
    memcpy(theirs.handle, own, btl.module->btl_registration_handle_size);
    publish("window", &theirs, sizeof theirs);
    fence();
    CHECK(look_up(other, "window", &bytes, &size) && size == sizeof theirs);
    memcpy(&theirs, bytes, sizeof theirs);
    in_threads(everything);
    CHECK(started == ended && started == each * THREADS);
    btl_settle(&btl);
    CHECK(btl.module->btl_deregister_mem(btl.module, own) == OPAL_SUCCESS);
    btl_end(&btl);
}

/* Announces and gives up the peer while others use it; what they send is completed or refused. */
static void send_whatever_comes(unsigned thread)
{
    opal_proc_t *procs[1] = {&host_proc[other]->super};
    endpoint_t peer = btl.peer;

    if (thread == 0) {
        for (int i = 0; i < 50; i++)
            host_progress();
        CHECK(btl.module->btl_del_procs(btl.module, 1, procs, &peer) == OPAL_SUCCESS);
        stop = true;
    }
    for (uint64_t i = 0; i < each && (i < 50 || !stop); i++) {
        btl_post(&btl, i * THREADS + thread, HEADER + i % 3000, CALLED);
        host_progress();
    }
    while (books.completed < books.posted)
        host_progress();
}

static void given_up_by_one_thread(void)
{
    each = 2000;
    btl_begin(&btl, btl_parameters(), true);
    in_threads(send_whatever_comes);
    fence();
    btl_finalize(&btl);
}

/* The level rises after the modules were made: MPI_Init with one thread, then a thread that only looks. */
static void look_on(unsigned thread)
{
    if (thread == 0) {
        for (uint64_t number = 0; number < each; number++) {
            CHECK(btl_post(&btl, number, HEADER + number % 2000, CALLED) >= 0);
            host_progress();
        }
        btl_settle(&btl);
        stop = true;
    }
    while (!stop) {
        unsigned long long values[8];
        CHECK(host_counter(btl_sends(), values, 8) == 1);
    }
}

static void counters_are_read_by_others(void)
{
    each = is_slow ? 200 : 3000;
    btl_begin(&btl, btl_parameters(), false);
    in_threads(look_on);
    btl_end(&btl);
}

/* MPI_T may be called while MPI_Finalize runs, and between sessions: a thread that does nothing but read. */
static void *counter;
static _Atomic unsigned long reads;

static void *read_on(void *unused)
{
    unsigned long long values[8];

    (void)unused;
    for (; !stop; reads++)
        CHECK(host_read_counter(counter, values, 8) == 1);
    return NULL;
}

static void counters_are_read_beside_finalize(void)
{
    pthread_t reader;

    host_begin(btl_parameters());
    for (int turn = 0; turn < (is_slow ? 25 : 200); turn++) {
        unsigned long seen = reads;

        books.closed = false;
        btl_load(&btl);
        btl_init(&btl, false);
        if (turn == 0) {
            counter = host_find_counter(btl_sends());
            CHECK(counter != NULL && pthread_create(&reader, NULL, read_on, NULL) == 0);
        }
        while (reads < seen + 20)
            sched_yield();
        btl_finalize(&btl);
    }
    stop = true;
    CHECK(pthread_join(reader, NULL) == 0);
}

const struct test btl_thread_tests[] = {
    {"btl threads send", sends, RETURNS},
    {"btl threads come later", threads_come_later, RETURNS},
    {"btl callbacks in threads", callbacks_in_threads, RETURNS},
    {"btl everything at once", everything_at_once, RETURNS},
    {"btl given up by one thread", given_up_by_one_thread, RETURNS},
    {"btl counters are read by others", counters_are_read_by_others, RETURNS},
    {"btl counters are read beside finalize", counters_are_read_beside_finalize, RETURNS},
    {0},
};
