/* Rank 2 is stopped before anything is connected, and lives on when ranks 0 and 1 have talked: who is stopped holds up nobody
 * else, and loses nothing of what was sent to it meanwhile. Nothing here depends on time: who is held up never gets to the signal
 * that ends it. All ranks are processes of one machine. FILE is not there yet: by it rank 2 says which process it is, for a message
 * would connect it.
 *
 * usage: stopped FILE */
#include "check.h"

enum { STOPPED = 2, TAG = 7, ROUNDS = 50, LONG = 300000 };

static unsigned char out[LONG], in[LONG];

/* Messages both ways, short and long in turn. */
static void talk(int peer)
{
    for (int round = 0; round < ROUNDS; round++) {
        int size = round % 2 ? LONG : 64;

        doing("exchange with", peer);
        fill(out, (size_t)size, seed_of(check_rank, round, (size_t)size));
        memset(in, 0, (size_t)size);
        MPI(MPI_Sendrecv(out, size, MPI_BYTE, peer, TAG, in, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        VERIFY(in, (size_t)size, seed_of(peer, round, (size_t)size));
    }
}

/* Whether a process is stopped, proc(5). */
static bool is_stopped(long pid)
{
    char name[64], line[512] = "";
    const char *state;
    FILE *file;

    snprintf(name, sizeof name, "/proc/%ld/stat", pid);
    file = fopen(name, "r");
    if (file == NULL || fgets(line, sizeof line, file) == NULL)
        abort();
    fclose(file);
    state = strrchr(line, ')');
    return state != NULL && state[2] == 'T';
}

int main(int argc, char **argv)
{
    static unsigned char early[LONG];
    MPI_Request request;
    FILE *file;
    long pid;

    check_start(&argc, &argv, "stopped", MPI_THREAD_SINGLE, 3);
    if (!CHECK_EQ(argc, 2) || !CHECK_EQ(check_size, 3))
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (check_rank == STOPPED) {
        char made[PATH_MAX];

        snprintf(made, sizeof made, "%s.new", argv[1]);
        file = fopen(made, "w");
        if (file == NULL || fprintf(file, "%ld\n", (long)getpid()) < 0 || fclose(file) != 0 || rename(made, argv[1]) != 0)
            abort();
        talk(0);
        MPI(MPI_Recv(in, LONG, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        VERIFY(in, LONG, seed_of(1, TAG + 1, LONG));
        talk(1);
        return check_finish();
    }
    while ((file = fopen(argv[1], "r")) == NULL)
        usleep(1000);
    if (fscanf(file, "%ld", &pid) != 1 || fclose(file) != 0)
        abort();
    if (check_rank == 0 && kill((pid_t)pid, SIGSTOP) != 0)
        abort();
    while (!is_stopped(pid))
        usleep(1000);
    doing("what waits for who is stopped", pid);
    fill(early, LONG, seed_of(1, TAG + 1, LONG));
    if (check_rank == 1)
        MPI(MPI_Isend(early, LONG, MPI_BYTE, STOPPED, TAG + 1, MPI_COMM_WORLD, &request));
    talk(check_rank ^ 1);
    if (check_rank == 0) {
        CHECK(is_stopped(pid));
        if (kill((pid_t)pid, SIGCONT) != 0)
            abort();
    } else {
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    talk(STOPPED);
    return check_finish();
}
