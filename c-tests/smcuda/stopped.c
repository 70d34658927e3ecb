/* Rank 1 is stopped while rank 0 sends to it, more than any memory in between holds, and goes on later: nothing is
 * lost, and nobody is given up. A child of rank 1 wakes it, once it has been stopped for a while. */
#include "../mpi/check.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { TAG = 9, MESSAGES = 4000, WORDS = 250, WHILE_MS = 700 };

/* Whether a process is stopped (proc_pid_stat(5)). */
static int is_stopped(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int file = open(path, O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *behind = strrchr(text, ')');
    return behind != NULL && behind[2] == 'T';
}

static pid_t waker(pid_t sleeper)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    struct timespec turn = { .tv_nsec = 1000000 };
    for (int stopped = 0; stopped < WHILE_MS; stopped += is_stopped(sleeper))
        nanosleep(&turn, NULL);
    kill(sleeper, SIGCONT);
    _exit(0);
}

int main(int argc, char **argv)
{
    static int out[WORDS], in[WORDS];
    static MPI_Request requests[MESSAGES];
    static int all[MESSAGES][WORDS];

    check_start(&argc, &argv, "stopped", MPI_THREAD_SINGLE, 2);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (check_rank == 1) {
        pid_t child = waker(getpid());
        CHECK(child > 0);
        raise(SIGSTOP);
        for (int n = 0; n < MESSAGES; n++) {
            doing("receive", n);
            MPI(MPI_Recv(in, WORDS, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK_EQ(in[0], n);
            CHECK_EQ(in[WORDS - 1], n);
        }
        MPI(MPI_Send(out, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD));
        waitpid(child, NULL, 0);
    } else if (check_rank == 0) {
        for (int n = 0; n < MESSAGES; n++) {
            doing("send", n);
            for (int word = 0; word < WORDS; word++)
                all[n][word] = n;
            MPI(MPI_Isend(all[n], WORDS, MPI_INT, 1, TAG, MPI_COMM_WORLD, &requests[n]));
        }
        doing("waiting", 0);
        MPI(MPI_Recv(in, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
    }
    return check_finish();
}
