/* MPI begins and ends again and again in one process, by a session each time. Needs MPI 4.
 *
 * usage: lives [lives]        a session begins and ends
 *        lives talk [lives]   with messages in each
 *
 * Between two lives the ranks wait for each other, by counters in a file. Without that, Open MPI 5.0.7 itself hangs or
 * fails now and then, over each of its own transports: the fence of MPI_Session_init is over without a rank that is still
 * ending its life, and the next one waits for who has gone. With it, a rank still hangs there once in thousands of lives,
 * over its own sm as well: it is not told that the fence is over. The watchdog says where. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* Lives that have ended, and ranks that are in MPI_Session_init. */
static struct shared { atomic_int ended, beginning; } *shared;
static char path[200];

/* The file is the job's, and goes with the last life. */
static void share(void)
{
    const char *job = getenv("PMIX_NAMESPACE");
    snprintf(path, sizeof path, "/dev/shm/lives-%s", job == NULL ? "alone" : job);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (!CHECK(file >= 0 && ftruncate(file, 4096) == 0))
        exit(2);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (!CHECK(shared != MAP_FAILED))
        exit(2);
}

/* Waits until all ranks have ended so many lives. */
static void together(int life, bool is_last)
{
    doing("waiting for the others", life);
    int all = (life + 1) * check_size;
    if (atomic_fetch_add(&shared->ended, 1) + 1 == all && is_last)
        unlink(path);
    while (atomic_load(&shared->ended) < all) {
        if (atomic_load(&shared->beginning) != 0)
            atomic_store(&check_what, "waiting for one in Session_init");
        sched_yield();
    }
}

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
    atomic_fetch_add(&shared->beginning, 1);
    if (!MPI(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session)))
        exit(2);
    atomic_fetch_sub(&shared->beginning, 1);
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
    share();
    for (int life = 0; life < lives && total == 0; life++) {
        total = live(life, talks);
        together(life, life == lives - 1 || total != 0);
    }
    return check_print_verdict(total);
}

#endif
