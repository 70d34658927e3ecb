/* MPI begins and ends again and again in one process, by a session each time. Between two lives nothing holds the
 * ranks together: what one of them finds of another may be of the life before, or nothing yet. Needs MPI 4.
 *
 * usage: lives [lives]        a session begins and ends
 *        lives talk [lives]   with messages in each. Open MPI 5.0.7 itself hangs in that now and then, over each of its
 *                             own transports (PMIx_Group_construct, or the fence of MPI_Session_init, which
 *                             is over without a rank that is still ending its life) */
#include "check.h"

/* Open MPI 5 has sessions and calls itself MPI 3.1. */
#if MPI_VERSION < 4 && !(defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)

int main(void)
{
    fprintf(stderr, "FAIL lives: this MPI has no sessions\n");
    return 2;
}

#else

enum { LIVES = 20, LONGEST = 100000, MAX_RANKS = 64 };

static const size_t sizes[] = { 1, 5000, LONGEST };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* All to all, of every length; what was sent in another life would be seen. */
static void exchange(int life, MPI_Comm comm)
{
    static unsigned char *out[MAX_RANKS], *in[MAX_RANKS];
    MPI_Request requests[2 * MAX_RANKS];
    MPI_Status status[2 * MAX_RANKS];
    for (int s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        for (int to = 0; to < check_size; to++) {
            in[to] = guarded_new(n);
            out[to] = guarded_new(n);
            fill(out[to], n, seed_of(check_rank * 1000 + to, life, n));
            MPI(MPI_Irecv(in[to], (int)n, MPI_BYTE, to, s, comm, &requests[2 * to]));
            MPI(MPI_Isend(out[to], (int)n, MPI_BYTE, to, s, comm, &requests[2 * to + 1]));
        }
        MPI(MPI_Waitall(2 * check_size, requests, status));
        for (int from = 0; from < check_size; from++) {
            CHECK_STATUS(&status[2 * from], from, s, (int)n);
            VERIFY(in[from], n, seed_of(from * 1000 + check_rank, life, n));
            GUARDED_FREE(in[from], n);
            GUARDED_FREE(out[from], n);
        }
    }
}

/* Gives the failures of all ranks. */
static int live(int life, bool talks)
{
    MPI_Session session;
    MPI_Group everybody;
    MPI_Comm comm = MPI_COMM_NULL;
    char tag[64];
    int mine, total = -1;
    doing("Session_init", life);
    if (!MPI(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session)))
        exit(2);
    MPI(MPI_Group_from_session_pset(session, "mpi://WORLD", &everybody));
    MPI(MPI_Group_rank(everybody, &check_rank));
    MPI(MPI_Group_size(everybody, &check_size));
    if (!CHECK(check_size <= MAX_RANKS))
        exit(2);
    if (!talks) {
        MPI(MPI_Group_free(&everybody));
        doing("Session_finalize", life);
        MPI(MPI_Session_finalize(&session));
        return atomic_load(&check_failures);
    }
    doing("Comm_create_from_group", life);
    snprintf(tag, sizeof tag, "hawser.life.%d", life);
    if (!MPI(MPI_Comm_create_from_group(everybody, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm)))
        exit(2);
    MPI(MPI_Group_free(&everybody));
    doing("all to all", life);
    exchange(life, comm);
    doing("adding up failures", life);
    mine = atomic_load(&check_failures);
    MPI(MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, comm));
    MPI(MPI_Comm_free(&comm));
    doing("Session_finalize", life);
    MPI(MPI_Session_finalize(&session));
    return total;
}

int main(int argc, char **argv)
{
    int total = 0;
    bool talks = argc > 1 && strcmp(argv[1], "talk") == 0;
    int lives = argc > 1 + talks ? atoi(argv[1 + talks]) : LIVES;
    check_arm("lives");
    for (int life = 0; life < lives && total == 0; life++)
        total = live(life, talks);
    return check_print_verdict(total);
}

#endif
