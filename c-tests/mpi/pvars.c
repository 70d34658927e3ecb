/* The transport's counters through MPI_T: they are listed under the component's name, and
 * they count what happens.
 *
 * usage: pvars NAME     the component's name: ofi or hawser */
#include "check.h"
#include "pvar.h"

static MPI_T_pvar_session session;

struct counter {
    const char *name;
    MPI_T_pvar_handle handle;
    unsigned long long before;
};

static unsigned long long value_of(struct counter *counter)
{
    unsigned long long value = 0;
    MPI(MPI_T_pvar_read(session, counter->handle, &value));
    return value;
}

static void open_counter(struct counter *counter, const char *component)
{
    char wanted[128];
    int count = 0;
    struct pvar what;
    snprintf(wanted, sizeof wanted, "mtl_%s_%s", component, counter->name);
    doing(counter->name, 0);
    int index = pvar_named(wanted, &what);
    if (!CHECK(index >= 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    CHECK_EQ(what.class, MPI_T_PVAR_CLASS_COUNTER);
    CHECK(what.type == MPI_UNSIGNED_LONG_LONG);
    CHECK(strlen(what.text) > 20);
    MPI(MPI_T_pvar_handle_alloc(session, index, NULL, &counter->handle, &count));
    CHECK_EQ(count, 1);
    counter->before = value_of(counter);
}

int main(int argc, char **argv)
{
    enum { COPIED_SENDS, COPIED_RECEIVES, COPIED_BYTES, SYNCHRONOUS, PROBES, TRUNCATED, COUNTERS };
    struct counter counters[COUNTERS] = {
        { .name = "copied_sends" },      { .name = "copied_receives" }, { .name = "copied_bytes" },
        { .name = "synchronous_sends" }, { .name = "probes" },          { .name = "truncated" },
    };
    int level = 0, flag = 0, number = 7, cells[20] = { 0 };
    MPI_Request request;
    MPI_Datatype gaps;
    MPI_Status status;

    check_start(&argc, &argv, "pvars", MPI_THREAD_SINGLE, 2);
    if (!CHECK(argc == 2))
        MPI_Abort(MPI_COMM_WORLD, 2);
    int peer = check_rank ^ 1;
    MPI(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    MPI(MPI_T_pvar_session_create(&session));
    for (int i = 0; i < COUNTERS; i++)
        open_counter(&counters[i], argv[1]);

    doing("the counted traffic", 0);
    MPI(MPI_Type_vector(10, 1, 2, MPI_INT, &gaps));
    MPI(MPI_Type_commit(&gaps));
    MPI(MPI_Irecv(cells, 1, gaps, peer, 1, MPI_COMM_WORLD, &request));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Send(cells, 1, gaps, peer, 1, MPI_COMM_WORLD));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI(MPI_Irecv(&number, 1, MPI_INT, peer, 2, MPI_COMM_WORLD, &request));
    MPI(MPI_Ssend(&level, 1, MPI_INT, peer, 2, MPI_COMM_WORLD));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI(MPI_Iprobe(peer, 99, MPI_COMM_WORLD, &flag, &status));
    CHECK_EQ(flag, 0);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Irecv(&number, 1, MPI_BYTE, peer, 3, MPI_COMM_WORLD, &request));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Send(cells, 4, MPI_INT, peer, 3, MPI_COMM_WORLD));
    CHECK(MPI_Wait(&request, &status) != MPI_SUCCESS);

    static const unsigned long long least[COUNTERS] = { 1, 1, 80, 1, 1, 1 };
    for (int i = 0; i < COUNTERS; i++) {
        unsigned long long more = value_of(&counters[i]) - counters[i].before;
        doing(counters[i].name, (long long)more);
        CHECK(more >= least[i]);
        MPI(MPI_T_pvar_handle_free(session, &counters[i].handle));
    }
    MPI(MPI_T_pvar_session_free(&session));
    MPI(MPI_T_finalize());
    MPI(MPI_Type_free(&gaps));
    return check_finish();
}
