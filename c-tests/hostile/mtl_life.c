/* The life of a matching transport: offered and not taken, under both names, twice. */
#include "mtl.h"

#include <stdlib.h>

#include "btl.h"

/* Offered, and the host takes another one. */
static void offered_and_closed(void)
{
    struct mtl mtl;

    host_begin(mtl_parameters());
    for (int turn = 0; turn < 3; turn++) {
        mca_base_module_t *module = NULL;
        int priority = -1;

        mtl_load(&mtl, turn % 2 ? "ofi" : "hawser");
        CHECK(mtl.component->mtl_version.mca_query_component(&module, &priority) == OMPI_SUCCESS);
        CHECK(module != NULL && priority > 0);
        host_progress();
        CHECK(mtl.component->mtl_version.mca_close_component() == OMPI_SUCCESS);
        CHECK(mtl.component->mtl_version.mca_close_component() == OMPI_SUCCESS);
    }
}

/* Neither name offers what the other has offered; whoever asks again gets nothing. */
static void one_of_two_names(void)
{
    struct mtl first, second;
    mca_base_module_t *module = NULL;
    int priority = -1;

    host_begin(mtl_parameters());
    mtl_load(&first, "ofi");
    mtl_load(&second, "hawser");
    CHECK(version_init_mtl(second.component, false) == NULL, "nothing was offered");
    CHECK(first.component->mtl_version.mca_query_component(&module, &priority) == OMPI_SUCCESS);
    module = (mca_base_module_t *)1;
    CHECK(second.component->mtl_version.mca_query_component(&module, &priority) < 0 && module == NULL);
    CHECK(first.component->mtl_version.mca_query_component(&module, &priority) < 0 && module == NULL);
    CHECK(version_init_mtl(second.component, false) == NULL);
    CHECK(second.component->mtl_version.mca_close_component() == OMPI_SUCCESS);
    first.module = version_init_mtl(first.component, false);
    CHECK(first.module != NULL);
    CHECK(version_init_mtl(first.component, false) == NULL, "it was taken");
    CHECK(first.module->mtl_finalize(first.module) == OMPI_SUCCESS);
    CHECK(first.component->mtl_version.mca_close_component() == OMPI_SUCCESS);
}

/* One message from each to the other. */
static void exchange(struct mtl *mtl, uint64_t number)
{
    struct request *in = request_new(mtl, 5000, true), *out = request_new(mtl, HEADER + number * 90, false);

    CHECK(mtl_irecv(in, mtl->world, other, (int)number) == OMPI_SUCCESS);
    CHECK(mtl_isend(out, mtl->world, (int)number, number, number % 2) == OMPI_SUCCESS);
    request_wait(in);
    request_wait(out);
    CHECK(request_check(in) == number);
    request_free(in);
    request_free(out);
}

/* A module is asked for again, under both names, while there is one: it stays the only one, and works. */
static void opened_twice(void)
{
    static const char *const names[] = {"hawser", "ofi"};
    struct mtl mtl, again;

    mtl_begin(&mtl, "hawser", false);
    for (uint64_t turn = 0; turn < 4; turn++) {
        mca_base_module_t *module = (mca_base_module_t *)1;
        int priority = -1;

        mtl_load(&again, names[turn % 2]);
        CHECK(again.component->mtl_version.mca_query_component(&module, &priority) < 0 && module == NULL);
        CHECK(version_init_mtl(again.component, false) == NULL);
        exchange(&mtl, turn);
    }
    mtl_end(&mtl);
}

/* The modex fails, or does worse: that is no success. */
static void modex_fails(void)
{
    struct mtl mtl;

    host_begin(mtl_parameters());
    mtl_load(&mtl, "hawser");
    mtl_init(&mtl, false);
    fence();
    for (host_modex = KNOWS_NOBODY; host_modex <= GIVES_NOTHING; host_modex++) {
        unsigned told = host_help + host_lines;
        CHECK(mtl.module->mtl_add_procs(mtl.module, RANKS, host_proc) < 0);
        CHECK(host_help + host_lines > told, "and the user hears of it");
    }
    host_modex = ANSWERS;
    mtl_meet(&mtl);
    fence();
    exchange(&mtl, 1);
    mtl_end(&mtl);
}

static void no_such_provider(void)
{
    const char *const parameters[] = {"mtl=hawser", "opal_common_ofi_provider_include=nothing", NULL};
    mca_base_module_t *module = (mca_base_module_t *)1;
    int priority = -1;
    struct mtl mtl;

    host_begin(parameters);
    mtl_load(&mtl, "hawser");
    CHECK(mtl.component->mtl_version.mca_query_component(&module, &priority) < 0 && module == NULL);
    CHECK(host_help + host_lines > 0, "the user asked for it and hears nothing");
    CHECK(mtl.component->mtl_version.mca_close_component() == OMPI_SUCCESS);
}

/* Sessions, each with a little traffic; the second one under the other name. */
static void sessions(void)
{
    struct mtl mtl;

    host_begin(mtl_parameters());
    for (int session = 0; session < 2; session++) {
        mtl_load(&mtl, session ? "ofi" : "hawser");
        mtl_init(&mtl, false);
        fence();
        mtl_meet(&mtl);
        fence();
        for (uint64_t number = 0; number < 50; number++)
            exchange(&mtl, number);
        mtl_end(&mtl);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK(host_proc[rank]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] == NULL);
        fence();
    }
}

/* A module that was never used, with peers and without. */
static void unused(void)
{
    struct mtl mtl;

    host_begin(mtl_parameters());
    for (int turn = 0; turn < 2; turn++) {
        mtl_load(&mtl, "hawser");
        mtl_init(&mtl, false);
        fence();
        if (turn == 1)
            CHECK(mtl.module->mtl_add_procs(mtl.module, RANKS, host_proc) == OMPI_SUCCESS);
        for (int i = 0; i < 100; i++)
            host_progress();
        if (turn == 1)
            CHECK(mtl.module->mtl_del_procs(mtl.module, RANKS, host_proc) == OMPI_SUCCESS);
        CHECK(mtl.module->mtl_finalize(mtl.module) == OMPI_SUCCESS);
        CHECK(mtl.component->mtl_version.mca_close_component() == OMPI_SUCCESS);
        fence();
    }
}

/* Both components of the library in one process, as the host may load them. */
static void beside_the_btl(void)
{
    static const char *parameters[16];
    const char *const *more = mtl_parameters();
    struct btl btl;
    struct mtl mtl;
    int count = 0;

    for (int i = 0; btl_parameters()[i] != NULL; i++)
        parameters[count++] = btl_parameters()[i];
    for (int i = 0; more[i] != NULL; i++)
        parameters[count++] = more[i];
    btl_begin(&btl, parameters, false);
    mtl_load(&mtl, "hawser");
    mtl_init(&mtl, false);
    fence();
    mtl_meet(&mtl);
    fence();
    for (uint64_t number = 0; number < 100; number++) {
        struct request *in = request_new(&mtl, 3000, true), *out = request_new(&mtl, HEADER + number * 20, false);
        btl_post(&btl, number, HEADER + number * 20, MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
        CHECK(mtl_irecv(in, mtl.world, MPI_ANY_SOURCE, MPI_ANY_TAG) == OMPI_SUCCESS);
        CHECK(mtl_isend(out, mtl.world, 1, number, false) == OMPI_SUCCESS);
        request_wait(in);
        request_wait(out);
        CHECK(request_check(in) == number);
        request_free(in);
        request_free(out);
    }
    mtl_end(&mtl);
    btl_settle(&btl);
    btl_end(&btl);
}

const struct test mtl_life_tests[] = {
    {"mtl offered and closed", offered_and_closed, RETURNS},
    {"mtl one of two names", one_of_two_names, RETURNS},
    {"mtl opened twice", opened_twice, RETURNS},
    {"mtl modex fails", modex_fails, RETURNS},
    {"mtl no such provider", no_such_provider, RETURNS},
    {"mtl sessions", sessions, RETURNS},
    {"mtl unused", unused, RETURNS},
    {"mtl beside the btl", beside_the_btl, RETURNS},
    {0},
};
