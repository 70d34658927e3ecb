/* What a component has counted, by MPI_T: a line `counter RANK NAME VALUE` for each of its performance
 * variables of which there are numbers, the values of all its modules together. Sends nothing. */
#ifndef COUNTERS_H
#define COUNTERS_H

#include "check.h"

static inline void print_counters(const char *prefix)
{
    MPI_T_pvar_session session;
    int level, variables = 0;
    MPI(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    MPI(MPI_T_pvar_session_create(&session));
    MPI(MPI_T_pvar_get_num(&variables));
    for (int i = 0; i < variables; i++) {
        char name[256];
        int name_size = sizeof name, text_size = 0, verbosity, class, bind, readonly, continuous, atomic, count = 0;
        MPI_Datatype type;
        MPI_T_enum names;
        MPI_T_pvar_handle handle;
        if (MPI_T_pvar_get_info(i, name, &name_size, &verbosity, &class, &type, &names, NULL, &text_size, &bind, &readonly,
                                &continuous, &atomic) != MPI_SUCCESS ||
            strncmp(name, prefix, strlen(prefix)) != 0 || type != MPI_UNSIGNED_LONG_LONG)
            continue;
        MPI(MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &count));
        {
            unsigned long long values[count > 0 ? count : 1], sum = 0;
            MPI(MPI_T_pvar_read(session, handle, values));
            for (int module = 0; module < count; module++)
                sum += values[module];
            printf("counter %d %s %llu\n", check_rank, name + strlen(prefix), sum);
        }
        MPI(MPI_T_pvar_handle_free(session, &handle));
    }
    MPI(MPI_T_pvar_session_free(&session));
    MPI(MPI_T_finalize());
    fflush(stdout);
}

#endif
