/* Four threads a rank in a job whose thread level is told late, or only to a session: what is opened
 * while one thread was promised must bear four. Only calls without blocking: Open MPI's pml/ob1 itself
 * keeps one request for all blocking calls where it does not know of threads. Needs MPI 4, 2 ranks.
 *
 * usage: sessions_threads session|second|late [rounds]
 *     session   a session with thread_level=MPI_THREAD_MULTIPLE
 *     second    a plain session, whose messages flow, and then such a one
 *     late      a plain session, and then MPI_Init_thread(MPI_THREAD_MULTIPLE) */
#include "check.h"

#include <pthread.h>

/* Open MPI 5 has sessions and calls itself MPI 3.1. */
#if MPI_VERSION < 4 && !(defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)

int main(void)
{
    fprintf(stderr, "FAIL sessions_threads: this MPI has no sessions\n");
    return 2;
}

#else

enum { THREADS = 4, WINDOW = 4, LONGEST = 20000 };

static const size_t sizes[] = { 8, 0, 300, 8, LONGEST };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static int peer, rounds = 100;
static MPI_Comm own[THREADS], shared;

static size_t size_of(int round, int i)
{
    return sizes[(round + i) % SIZES];
}

static int tag_of(int thread, int i)
{
    return thread * WINDOW + i;
}

/* Some messages each way at once, found by tag or by order, with a probe now and then. */
static void exchange(int thread, int round, MPI_Comm comm)
{
    static _Thread_local unsigned char out[WINDOW][LONGEST], in[WINDOW][LONGEST];
    MPI_Request requests[2 * WINDOW];
    MPI_Status status[2 * WINDOW];
    int flag = 0;
    for (int i = 0; i < WINDOW; i++) {
        MPI(MPI_Irecv(in[i], LONGEST, MPI_BYTE, i % 2 ? MPI_ANY_SOURCE : peer, tag_of(thread, i), comm,
                      &requests[i]));
    }
    for (int i = 0; i < WINDOW; i++) {
        size_t n = size_of(round, i);
        fill(out[i], n, seed_of(check_rank, tag_of(thread, i) + round, n));
        if ((round + i) % 3 == 0)
            MPI(MPI_Issend(out[i], (int)n, MPI_BYTE, peer, tag_of(thread, i), comm, &requests[WINDOW + i]));
        else
            MPI(MPI_Isend(out[i], (int)n, MPI_BYTE, peer, tag_of(thread, i), comm, &requests[WINDOW + i]));
    }
    if (round % 4 == 0) {
        int found = 0;
        MPI(MPI_Iprobe(MPI_ANY_SOURCE, 1000 + thread, comm, &found, MPI_STATUS_IGNORE));
        CHECK_EQ(found, 0);
    }
    if (round % 2)
        while (!flag)
            MPI(MPI_Testall(2 * WINDOW, requests, &flag, status));
    else
        MPI(MPI_Waitall(2 * WINDOW, requests, status));
    for (int i = 0; i < WINDOW; i++) {
        size_t n = size_of(round, i);
        CHECK_STATUS(&status[i], peer, tag_of(thread, i), (int)n);
        VERIFY(in[i], n, seed_of(peer, tag_of(thread, i) + round, n));
    }
}

static void *work(void *argument)
{
    int thread = *(int *)argument;
    for (int round = 0; round < rounds; round++) {
        doing("round", round);
        exchange(thread, round, round % 2 ? shared : own[thread]);
    }
    return NULL;
}

static MPI_Session begin(const char *level)
{
    MPI_Session session;
    MPI_Info info = MPI_INFO_NULL;
    doing("Session_init", 0);
    if (level != NULL) {
        MPI(MPI_Info_create(&info));
        MPI(MPI_Info_set(info, "thread_level", level));
    }
    MPI(MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session));
    if (level != NULL)
        MPI(MPI_Info_free(&info));
    return session;
}

static MPI_Comm comm_of(MPI_Session session, const char *tag)
{
    MPI_Group everybody;
    MPI_Comm comm = MPI_COMM_NULL;
    doing("Comm_create_from_group", 0);
    MPI(MPI_Group_from_session_pset(session, "mpi://WORLD", &everybody));
    MPI(MPI_Comm_create_from_group(everybody, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm));
    MPI(MPI_Group_free(&everybody));
    return comm;
}

static void who(MPI_Comm comm)
{
    MPI(MPI_Comm_rank(comm, &check_rank));
    MPI(MPI_Comm_size(comm, &check_size));
    if (!CHECK_EQ(check_size, 2))
        exit(2);
    peer = 1 - check_rank;
}

/* Messages of one thread, while that is all that was asked for. */
static void alone(MPI_Comm comm)
{
    who(comm);
    doing("messages of one thread", 0);
    for (int round = 0; round < 20; round++)
        exchange(0, round, comm);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "session";
    bool is_late = strcmp(mode, "late") == 0, is_second = strcmp(mode, "second") == 0;
    MPI_Session plain = MPI_SESSION_NULL, session = MPI_SESSION_NULL;
    MPI_Comm first = MPI_COMM_NULL, base;
    pthread_t threads[THREADS];
    int numbers[THREADS], mine, total = -1;
    check_arm("sessions_threads");
    if (argc > 2)
        rounds = atoi(argv[2]);
    if (is_late || is_second) {
        plain = begin(NULL);
        first = comm_of(plain, "hawser.first");
        alone(first);
    }
    if (is_late) {
        int provided;
        doing("Init_thread", 0);
        MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
        CHECK_EQ(provided, MPI_THREAD_MULTIPLE);
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &base));
    } else {
        session = begin("MPI_THREAD_MULTIPLE");
        base = comm_of(session, "hawser.base");
    }
    who(base);
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Comm_dup(base, &own[t]));
    MPI(MPI_Comm_dup(base, &shared));
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        if (!CHECK_EQ(pthread_create(&threads[t], NULL, work, &numbers[t]), 0))
            abort();
    }
    for (int t = 0; t < THREADS; t++)
        CHECK_EQ(pthread_join(threads[t], NULL), 0);
    doing("adding up failures", 0);
    mine = atomic_load(&check_failures);
    MPI(MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, base));
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Comm_free(&own[t]));
    MPI(MPI_Comm_free(&shared));
    MPI(MPI_Comm_free(&base));
    if (first != MPI_COMM_NULL)
        MPI(MPI_Comm_free(&first));
    doing("the end", 0);
    if (is_late)
        MPI(MPI_Finalize());
    if (session != MPI_SESSION_NULL)
        MPI(MPI_Session_finalize(&session));
    if (plain != MPI_SESSION_NULL)
        MPI(MPI_Session_finalize(&plain));
    return check_print_verdict(total);
}

#endif
