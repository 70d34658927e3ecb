/* The life of a component: opened without use, opened twice, closed early, opened again. */
#include "btl.h"

#include <stdlib.h>

#include "opal/runtime/opal_progress.h"

/* Tools open and close components, and list their parameters, without ever making a module. */
static void opened_and_closed(void)
{
    struct btl btl;

    host_begin(btl_parameters());
    for (int turn = 0; turn < 3; turn++) {
        btl_load(&btl);
        CHECK(btl.component->btl_progress() == 0, "there is nothing to advance");
        CHECK(btl.component->btl_version.mca_close_component() == OPAL_SUCCESS);
    }
}

/* Nobody asked for it by name, and there is no device. (Memory there always is.) */
static void not_asked_for(void)
{
    const char *const parameters[] = {"btl=tcp,self", NULL};
    struct btl btl;
    int count = 7;

    host_begin(parameters);
    btl_load(&btl);
    for (int turn = 0; turn < 3; turn++) {
        CHECK(btl.component->btl_init(&count, false, false) == NULL);
        CHECK(count == 0);
    }
    CHECK(host_help == 0, "%s", host_topic);
    CHECK(btl.component->btl_progress() == 0);
    CHECK(btl.component->btl_version.mca_close_component() == OPAL_SUCCESS);
}

/* A wrong value is told to the user, and there is no module. */
static void wrong_value(void)
{
    struct btl btl;
    int count = 7;

    host_begin(btl_wrong_parameters());
    btl_load(&btl);
    CHECK(btl.component->btl_init(&count, false, false) == NULL);
    CHECK(count == 0 && host_help + host_lines > 0);
    CHECK(btl.component->btl_version.mca_close_component() == OPAL_SUCCESS);
}

/* Modules that nobody uses. */
static void made_and_ended(void)
{
    struct btl btl;

    host_begin(btl_parameters());
    for (int turn = 0; turn < 3; turn++) {
        books.closed = false;
        btl_load(&btl);
        btl_init(&btl, false);
        for (int i = 0; i < 100; i++)
            host_progress();
        btl_finalize(&btl);
        fence();
    }
}

/* Two sessions, one after the other, each with traffic. */
static void two_sessions(void)
{
    struct btl btl;

    host_begin(btl_parameters());
    for (int session = 0; session < 2; session++) {
        books = (struct books){0};
        btl_load(&btl);
        btl_init(&btl, false);
        fence();
        btl_meet(&btl);
        btl_listen(&btl);
        fence();
        for (int number = 0; number < 200; number++)
            btl_post(&btl, number, HEADER + number * 17 % 3000, MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
        btl_settle(&btl);
        btl_end(&btl);
        fence();
    }
}

/* The parameters are registered again while modules are there: a tool in the process lists them. */
static void registered_again(void)
{
    struct btl btl, again;

    btl_begin(&btl, btl_parameters(), false);
    btl_load(&again);
    CHECK(again.component == btl.component);
    for (int number = 0; number < 100; number++)
        btl_post(&btl, number, HEADER + number, MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    CHECK(again.component->btl_version.mca_close_component() == OPAL_SUCCESS);
    btl_settle(&btl);
    btl_end(&btl);
}

/* No del_procs: the host may end a module with its peers. */
static void peers_left_to_finalize(void)
{
    struct btl btl;

    btl_begin(&btl, btl_parameters(), false);
    for (int number = 0; number < 100; number++)
        btl_post(&btl, number, HEADER + number * 100, MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    btl_settle(&btl);
    btl_finalize(&btl);
}

/* The same peer is announced again and again: it is the same endpoint. */
static void peers_announced_again(void)
{
    struct btl btl;
    endpoint_t first;

    btl_begin(&btl, btl_parameters(), false);
    first = btl.peer;
    for (int turn = 0; turn < 10; turn++) {
        btl_meet(&btl);
        CHECK(btl.peer == first);
        btl_post(&btl, turn, 100, MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    }
    btl_settle(&btl);
    btl_end(&btl);
}

/* Modules are asked for again while there are some: these stay, and there are no others. */
static void opened_twice(void)
{
    struct btl btl;

    btl_begin(&btl, btl_parameters(), false);
    for (int turn = 0; turn < 2; turn++) {
        int count = 7;
        CHECK(btl.component->btl_init(&count, false, false) == NULL && count == 0, "%d", count);
        for (int number = 0; number < 50; number++)
            btl_post(&btl, turn * 50 + number, HEADER + number * 20, MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
        btl_settle(&btl);
    }
    btl_part(&btl);
    btl_meet(&btl);
    btl_end(&btl);
}

/* The modex fails, or does worse: a peer of whom nothing is known is not reached, until it is. */
static void modex_fails(void)
{
    opal_proc_t *procs[RANKS];
    struct btl btl;

    host_begin(btl_parameters());
    btl_load(&btl);
    btl_init(&btl, false);
    fence();
    for (int rank = 0; rank < RANKS; rank++)
        procs[rank] = &host_proc[rank]->super;
    for (host_modex = KNOWS_NOBODY; host_modex <= GIVES_NOTHING; host_modex++) {
        uint64_t bits[1] = {0};
        opal_bitmap_t reachable = {.bitmap = bits, .array_size = 1, .max_size = 64};
        endpoint_t found[RANKS] = {(endpoint_t)1, (endpoint_t)1};
        CHECK(btl.module->btl_add_procs(btl.module, RANKS, procs, found, &reachable) == OPAL_SUCCESS);
        const bool has_itself = btl_has_itself(&btl);
        CHECK((found[self] != NULL) == has_itself && found[other] == NULL && bits[0] == (uint64_t)has_itself << self);
    }
    host_modex = ANSWERS;
    btl_meet(&btl);
    btl_listen(&btl);
    fence();
    for (int number = 0; number < 50; number++)
        btl_post(&btl, number, HEADER + number, MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    btl_settle(&btl);
    btl_end(&btl);
}

/* Performance variables, with modules and after them. */
static void counters_outlive_modules(void)
{
    unsigned long long values[8];
    struct btl btl;

    btl_begin(&btl, btl_parameters(), false);
    for (int number = 0; number < 50; number++)
        btl_post(&btl, number, 1000, MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    btl_settle(&btl);
    CHECK(host_counter(btl_devices(), values, 8) == 1);
    CHECK(host_counter(btl_sends(), values, 8) == 1 && values[0] >= 50, "%llu", values[0]);
    btl_end(&btl);
    CHECK(host_counter(btl_sends(), values, 8) <= 8 && values[0] == 0);
}

const struct test btl_life_tests[] = {
    {"btl opened and closed", opened_and_closed, RETURNS},
    {"usnic not asked for", not_asked_for, RETURNS},
    {"btl wrong value", wrong_value, RETURNS},
    {"btl made and ended", made_and_ended, RETURNS},
    {"btl two sessions", two_sessions, RETURNS},
    {"btl registered again", registered_again, RETURNS},
    {"btl peers left to finalize", peers_left_to_finalize, RETURNS},
    {"btl peers announced again", peers_announced_again, RETURNS},
    {"btl opened twice", opened_twice, RETURNS},
    {"btl modex fails", modex_fails, RETURNS},
    {"btl counters outlive modules", counters_outlive_modules, RETURNS},
    {0},
};
