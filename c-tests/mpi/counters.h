/* What a component counts, by MPI_T: a line `counter RANK NAME VALUE` for each of its performance
 * variables of which there are numbers, the values of all its modules together, and where there are several,
 * `module RANK NUMBER NAME VALUE` for each. Sends nothing. */
#ifndef COUNTERS_H
#define COUNTERS_H

#include "check.h"
#include "pvar.h"

enum { COUNTERS_MOST = 128 };

static MPI_T_pvar_session counters_session;
static int counters_count;
static struct {
    char name[128];
    MPI_T_pvar_handle handle;
    int values;
} counters[COUNTERS_MOST];

/* From now on they count. */
static inline void counters_begin(const char *prefix)
{
    int level, variables = 0;
    MPI(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    MPI(MPI_T_pvar_session_create(&counters_session));
    MPI(MPI_T_pvar_get_num(&variables));
    for (int i = 0; i < variables && counters_count < COUNTERS_MOST; i++) {
        struct pvar what;
        if (!pvar_at(i, &what) || strncmp(what.name, prefix, strlen(prefix)) != 0 || what.type != MPI_UNSIGNED_LONG_LONG)
            continue;
        snprintf(counters[counters_count].name, sizeof counters[0].name, "%.127s", what.name + strlen(prefix));
        MPI(MPI_T_pvar_handle_alloc(counters_session, i, NULL, &counters[counters_count].handle, &counters[counters_count].values));
        counters_count++;
    }
}

/* The values of all modules together; where `tells`, it says that of each where there are several. */
static inline unsigned long long counters_sum(int i, bool tells)
{
    unsigned long long values[counters[i].values > 0 ? counters[i].values : 1], sum = 0;
    MPI(MPI_T_pvar_read(counters_session, counters[i].handle, values));
    for (int module = 0; module < counters[i].values; module++) {
        sum += values[module];
        if (tells && counters[i].values > 1)
            printf("module %d %d %s %llu\n", check_rank, module, counters[i].name, values[module]);
    }
    return sum;
}

/* What one has counted until now. */
static inline unsigned long long counters_now(const char *name)
{
    int i = 0;
    while (i < counters_count && strcmp(counters[i].name, name) != 0)
        i++;
    if (!CHECK(i < counters_count))
        MPI_Abort(MPI_COMM_WORLD, 2);
    return counters_sum(i, false);
}

static inline void counters_print(void)
{
    for (int i = 0; i < counters_count; i++) {
        printf("counter %d %s %llu\n", check_rank, counters[i].name, counters_sum(i, true));
        MPI(MPI_T_pvar_handle_free(counters_session, &counters[i].handle));
    }
    MPI(MPI_T_pvar_session_free(&counters_session));
    MPI(MPI_T_finalize());
    fflush(stdout);
}

#endif
