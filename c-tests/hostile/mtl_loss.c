/* Ends of a matching transport that come too early, and threads. */
#include "mtl.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "btl.h"

static struct mtl mtl;

/* Receives that nothing comes for, messages that nobody has asked for. */
static void finalize_under_way(bool claims)
{
    enum { COUNT = 20 };
    struct request *in[COUNT], *out[COUNT];
    /* Kept to the end: it is the host's that has lost it. */
    static ompi_message_t *message;
    int flag = 0;

    mtl_begin(&mtl, "hawser", false);
    for (int i = 0; i < COUNT; i++) {
        in[i] = request_new(&mtl, 3000, true);
        CHECK(mtl_irecv(in[i], mtl.world, i % 2 ? other : MPI_ANY_SOURCE, 1000 + i) == OMPI_SUCCESS);
        out[i] = request_new(&mtl, HEADER + i * 100, false);
        CHECK(mtl_isend(out[i], mtl.world, i, i, false) == OMPI_SUCCESS);
    }
    while (claims && !flag)
        CHECK(mtl.module->mtl_improbe(mtl.module, mtl.world, other, 3, &flag, &message, NULL) == OMPI_SUCCESS);
    fence();
    for (int i = 0; i < 5; i++)
        CHECK(mtl.module->mtl_cancel(mtl.module, in[i]->head, 0) == OMPI_SUCCESS);
    mtl_finalize(&mtl);
    for (int i = 0; i < COUNT; i++) {
        request_free(in[i]);
        request_free(out[i]);
    }
    fence();
}

static void finalized_under_way(void) { finalize_under_way(false); }

/* LeakSanitizer's, where it is there. */
void __lsan_disable(void) __attribute__((weak));

/* And one message that was claimed and is left: what it needs stays, because the host may still name it. */
static void finalized_with_a_claim(void)
{
    if (__lsan_disable != NULL)
        __lsan_disable();
    finalize_under_way(true);
}

/* The peer dies with messages under way to it, plain ones and such as want an answer: none of them ends
 * twice. What was posted for it can be cancelled, probes find nothing, and the module ends. (What is sent to
 * the dead later, the TCP providers put off for ever.) */
static void peer_dies(void)
{
    enum { COUNT = 40 };
    struct request *in[COUNT], *out[COUNT];
    int flag;

    mtl_begin(&mtl, "hawser", false);
    for (int i = 0; i < COUNT; i++) {
        in[i] = request_new(&mtl, 100, true);
        CHECK(mtl_irecv(in[i], mtl.world, other, 5000 + i) == OMPI_SUCCESS);
        out[i] = request_new(&mtl, HEADER + i * 1000, false);
        CHECK(mtl_isend(out[i], mtl.world, i, i, i % 2) == OMPI_SUCCESS);
    }
    fence();
    if (self == 1) {
        kill(getpid(), SIGKILL);
        pause();
    }
    step("goes on without its peer");
    for (int i = 0; i < 5000; i++)
        host_progress();
    for (int i = 0; i < 10; i++)
        CHECK(mtl.module->mtl_iprobe(mtl.module, mtl.world, MPI_ANY_SOURCE, 7000, &flag, NULL) == OMPI_SUCCESS &&
              !flag);
    step("cancels its receives");
    for (int i = 0; i < COUNT; i++) {
        CHECK(mtl.module->mtl_cancel(mtl.module, in[i]->head, 0) == OMPI_SUCCESS);
        request_wait(in[i]);
        request_free(in[i]);
    }
    CHECK(mtl.module->mtl_del_comm(mtl.module, mtl.world) == OMPI_SUCCESS);
    CHECK(mtl.module->mtl_del_procs(mtl.module, RANKS, host_proc) == OMPI_SUCCESS);
    mtl_finalize(&mtl);
    for (int i = 0; i < COUNT; i++)
        request_free(out[i]);
}

/* Several threads, each with messages of its own; one of them also probes. */
enum { THREADS = 4 };
static uint64_t each;

static void *talk(void *argument)
{
    unsigned thread = (unsigned)(uintptr_t)argument;

    for (uint64_t i = 0; i < each; i++) {
        struct request *in = request_new(&mtl, 20000, true);
        struct request *out = request_new(&mtl, HEADER + i * 53 % 19000, false);
        int tag = (int)(thread * 1000 + i % 1000), flag = 0;

        if (i % 3 == 0)
            CHECK(mtl_irecv(in, mtl.world, i % 2 ? other : MPI_ANY_SOURCE, tag) == OMPI_SUCCESS);
        CHECK(mtl_isend(out, mtl.world, tag, i, i % 5 == 0) == OMPI_SUCCESS);
        if (i % 3 == 1) {
            ompi_message_t *message;
            for (; !flag; sched_yield())
                CHECK(mtl.module->mtl_improbe(mtl.module, mtl.world, other, tag, &flag, &message, NULL) ==
                      OMPI_SUCCESS);
            requests_started++;
            CHECK(mtl.module->mtl_imrecv(mtl.module, &in->convertor, &message, in->head) == OMPI_SUCCESS);
        } else if (i % 3 == 2) {
            for (; !flag; sched_yield())
                CHECK(mtl.module->mtl_iprobe(mtl.module, mtl.world, other, tag, &flag, NULL) == OMPI_SUCCESS);
            CHECK(mtl_irecv(in, mtl.world, other, tag) == OMPI_SUCCESS);
        }
        while (in->ended == 0 || out->ended == 0)
            host_progress();
        CHECK(request_check(in) == i);
        note_progress();
        request_free(in);
        request_free(out);
    }
    return NULL;
}

static void talk_in_threads(bool from_the_start)
{
    pthread_t thread[THREADS];

    each = is_slow ? 15 : 60;
    mtl_begin(&mtl, "hawser", from_the_start);
    host_set_threads(true);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, talk, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    mtl_end(&mtl);
}

static void threads(void) { talk_in_threads(true); }

/* The module was made for one thread; then a session asks for more. */
static void threads_come_later(void) { talk_in_threads(false); }

const struct test mtl_loss_tests[] = {
    {"mtl finalized under way", finalized_under_way, RETURNS},
    {"mtl finalized with a claim", finalized_with_a_claim, RETURNS},
    {"mtl peer dies", peer_dies, IS_KILLED},
    {"mtl threads", threads, RETURNS},
    {"mtl threads come later", threads_come_later, RETURNS},
    {0},
};
