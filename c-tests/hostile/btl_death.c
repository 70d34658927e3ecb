/* A peer that is killed at each moment at which it holds something of ours: before it is met, while it is met, in a
 * callback, with its ring full, while its memory is copied, while we give it up, and when it has ended in order. The
 * survivor gets back all that it has posted, is told once, and ends as if nothing had been. */
#include "btl.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static const uint32_t CALLED = MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
static unsigned char memory[1 << 18];
static unsigned errors;
static struct btl btl;

static _Noreturn void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void lost(mca_btl_base_module_t *module, int32_t flags, opal_proc_t *proc, char *text)
{
    CHECK(!books.closed && module == btl.module && flags == version_loss);
    CHECK(proc == &host_proc[other]->super && text != NULL && *text != '\0');
    errors++;
    step("hears that its peer is lost");
}

static void begin(void)
{
    btl_begin(&btl, btl_parameters(), false);
    CHECK(btl.module->btl_register_error(btl.module, lost) == OPAL_SUCCESS);
    fence();
}

static void everything_has_ended(void)
{
    step("waits for its sends");
    while (books.completed < books.posted)
        host_progress();
    for (int i = 0; i < 2000; i++)
        host_progress();
    CHECK(books.completed == books.posted);
}

static void survive(void)
{
    step("waits for the error callback");
    while (errors == 0)
        host_progress();
    everything_has_ended();
    CHECK(errors == 1 && host_help >= 1, "%u errors", errors);
    CHECK(btl_post(&btl, 50000, 1000, CALLED) < 0);
    btl_end(&btl);
}

/* Modules, and an address that is published; nobody is met. */
static void begin_alone(void)
{
    int pid = getpid();

    host_begin(btl_parameters());
    btl_load(&btl);
    btl_init(&btl, false);
    btl_listen(&btl);
    publish("pid", &pid, sizeof pid);
    fence();
}

/* The driver has seen that it is dead. */
static void await_death(void)
{
    const void *bytes;
    size_t size;
    int pid;

    CHECK(look_up(other, "pid", &bytes, &size) && size == sizeof pid);
    memcpy(&pid, bytes, sizeof pid);
    step("waits for the other one's death");
    while (kill(pid, 0) == 0)
        host_progress();
    CHECK(errno == ESRCH);
}

/* Whether it is met, as one that has gone, or not: what is posted ends, and nothing comes from there. */
static void nothing_comes_of_it(void)
{
    uint64_t bits[1] = {0};
    opal_bitmap_t reachable = {.bitmap = bits, .array_size = 1, .max_size = 64};
    opal_proc_t *procs[1] = {&host_proc[other]->super};
    endpoint_t found[1] = {(endpoint_t)1};

    CHECK(btl.module->btl_add_procs(btl.module, 1, procs, found, &reachable) == OPAL_SUCCESS);
    CHECK((found[0] != NULL) == (bits[0] != 0));
    btl.peer = found[0];
    for (int number = 0; number < 600 && btl.peer != NULL; number++)
        btl_post(&btl, number, HEADER + number * 20, CALLED);
    everything_has_ended();
    CHECK(books.delivered == 0 && errors == 0);
    if (btl.peer != NULL)
        btl_part(&btl);
    btl_finalize(&btl);
}

static void before_it_is_met(void)
{
    begin_alone();
    if (self == 1)
        die();
    await_death();
    nothing_comes_of_it();
}

/* It knows us, and has sent to us; we have not heard of it. */
static void before_we_know_it(void)
{
    begin_alone();
    if (self == 1) {
        btl_meet(&btl);
        for (int number = 0; number < 20; number++)
            btl_post(&btl, number, HEADER + number * 100, CALLED);
        die();
    }
    /* No progress before. */
    const void *bytes;
    size_t size;
    int pid;
    CHECK(look_up(other, "pid", &bytes, &size));
    memcpy(&pid, bytes, sizeof pid);
    while (kill(pid, 0) == 0)
        note_progress();
    nothing_comes_of_it();
}

static void die_in_callback(struct btl *to, uint64_t number, size_t size)
{
    (void)to, (void)size;
    if (self == 1 && number == 70)
        die();
}

static void in_a_callback(void)
{
    begin();
    on_received = die_in_callback;
    for (int number = 0; number < 200; number++)
        btl_post(&btl, number, HEADER + number * 100, CALLED);
    survive();
}

/* It receives nothing more, so that all that is posted waits; told so, it dies. */
static void begin_full(void)
{
    begin();
    if (self == 1) {
        while (told() == 0)
            note_progress();
        die();
    }
    for (int number = 0; number < 600; number++)
        btl_post(&btl, number, HEADER + number * 20, CALLED);
}

static void with_everything_full(void)
{
    begin_full();
    CHECK(books.completed < books.posted);
    tell(1);
    survive();
    CHECK(books.failed > 0);
}

/* The same, while del_procs waits for room. */
static void while_it_is_given_up(void)
{
    begin_full();
    tell(1);
    btl_part(&btl);
    everything_has_ended();
    CHECK(errors <= 1);
    btl_finalize(&btl);
}

/* Its memory is read and written all the time. */
static void in_transfers(void)
{
    struct {
        uint64_t address;
        unsigned char handle[MCA_BTL_REG_HANDLE_MAX_SIZE];
    } mine = {.address = (uintptr_t)memory}, theirs;
    struct mca_btl_base_registration_handle_t *own;
    const void *bytes;
    size_t size;
    int result = OPAL_SUCCESS;

    begin();
    own = btl.module->btl_register_mem(btl.module, NULL, memory, sizeof memory,
                                       MCA_BTL_REG_FLAG_REMOTE_READ | MCA_BTL_REG_FLAG_REMOTE_WRITE);
    CHECK(own != NULL);
    memcpy(mine.handle, own, btl.module->btl_registration_handle_size);
    publish("window", &mine, sizeof mine);
    fence();
    if (self == 1) {
        while (told() == 0)
            note_progress();
        die();
    }
    CHECK(look_up(other, "window", &bytes, &size));
    memcpy(&theirs, bytes, sizeof theirs);
    for (int i = 0; result == OPAL_SUCCESS; i++) {
        result = (i % 2 ? btl.module->btl_put : btl.module->btl_get)(
            btl.module, btl.peer, memory, theirs.address, NULL, (void *)theirs.handle, sizeof memory, 0,
            MCA_BTL_NO_ORDER, NULL, NULL, NULL);
        if (i == 20)
            tell(1);
        note_progress();
    }
    CHECK(result < 0);
    CHECK(btl.module->btl_deregister_mem(btl.module, own) == OPAL_SUCCESS);
    survive();
}

/* Who ends as it should is no loss, and wants nothing more. */
static void when_it_has_ended(void)
{
    begin();
    for (int number = 0; number < 100; number++)
        btl_post(&btl, number, HEADER + number * 100, CALLED);
    btl_settle(&btl);
    if (self == 1) {
        btl_end(&btl);
        fence();
        die();
    }
    fence();
    for (int number = 100; number < 600; number++)
        btl_post(&btl, number, HEADER + number * 20, CALLED);
    everything_has_ended();
    CHECK(errors == 0, "%u errors", errors);
    btl_end(&btl);
}

/* No death: it sends before we have made it known, and is heard. */
static void heard_before_it_is_met(void)
{
    begin_alone();
    if (self == 1)
        btl_meet(&btl);
    for (int number = 0; self == 1 && number < 50; number++)
        btl_post(&btl, number, HEADER + number * 300, CALLED);
    step("waits for a stranger's messages");
    if (self == 0)
        btl_await_received(50);
    fence();
    if (self == 0)
        btl_meet(&btl);
    for (int number = 0; self == 0 && number < 50; number++)
        btl_post(&btl, number, HEADER + number * 300, CALLED);
    btl_settle(&btl);
    btl_end(&btl);
}

const struct test btl_death_tests[] = {
    {"smcuda heard before it is met", heard_before_it_is_met, RETURNS},
    {"smcuda peer dies before it is met", before_it_is_met, IS_KILLED},
    {"smcuda peer dies before we know it", before_we_know_it, IS_KILLED},
    {"smcuda peer dies in a callback", in_a_callback, IS_KILLED},
    {"smcuda peer dies with everything full", with_everything_full, IS_KILLED},
    {"smcuda peer dies while it is given up", while_it_is_given_up, IS_KILLED},
    {"smcuda peer dies in transfers", in_transfers, IS_KILLED},
    {"smcuda peer dies when it has ended", when_it_has_ended, IS_KILLED},
    {0},
};
