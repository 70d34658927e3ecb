/* Processes that ranks make: children that live longer than MPI, children that end at once, programs
 * that are executed. MPI_Finalize waits for none of them, and messages before and after are right.
 *
 * What the children inherit is not theirs: they call nothing of MPI. That MPI_Finalize has waited for
 * one is told by the order of events: the child is told that it is over, and if it hears nothing for
 * so long that somebody must have waited for its end, it says so. */
#include "check.h"
#include <poll.h>
#include <sys/wait.h>

enum { PAIR = 2, TAG = 7, BYTES = 5000, CHILD_SECONDS = 25 };

static int serial;

/* Messages with the neighbour, short and long. */
static void messages(void)
{
    static unsigned char out[BYTES], in[BYTES];
    int peer = check_rank ^ 1;
    for (int size = 1; size <= BYTES; size += BYTES / 5) {
        doing("messages", ++serial);
        fill(out, (size_t)size, seed_of(check_rank, serial, (size_t)size));
        MPI(MPI_Sendrecv(out, size, MPI_BYTE, peer, TAG, in, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        VERIFY(in, (size_t)size, seed_of(peer, serial, (size_t)size));
    }
}

static pid_t fork_or_end(void)
{
    pid_t child = fork();
    if (child < 0)
        abort();
    return child;
}

static void ended_well(pid_t child)
{
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

int main(int argc, char **argv)
{
    int told[2], status = 0, total;
    check_start(&argc, &argv, "forks", MPI_THREAD_SINGLE, PAIR);
    messages();

    doing("a child that ends at once", 0);
    pid_t child = fork_or_end();
    if (child == 0)
        _exit(0);
    ended_well(child);
    messages();

    doing("a child that calls exit", 0);
    fflush(NULL);
    child = fork_or_end();
    if (child == 0)
        exit(0);
    ended_well(child);
    messages();

    doing("a program that is executed", 0);
    child = fork_or_end();
    if (child == 0) {
        execlp("true", "true", (char *)NULL);
        _exit(9);
    }
    ended_well(child);
    messages();

    doing("system", 0);
    CHECK_EQ(system("exit 0"), 0);
    messages();

    doing("a child that lives longer than MPI", 0);
    CHECK_EQ(pipe(told), 0);
    child = fork_or_end();
    if (child == 0) {
        /* Until its parent is through with MPI, or has waited for it in vain. */
        struct pollfd end = { .fd = told[0], .events = POLLIN };
        close(told[1]);
        _exit(poll(&end, 1, CHILD_SECONDS * 1000) == 1 ? 0 : 1);
    }
    close(told[0]);
    messages();

    doing("adding up failures", 0);
    int mine = atomic_load(&check_failures);
    MPI(MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    doing("MPI_Finalize", 0);
    MPI_Finalize();
    close(told[1]);
    waitpid(child, &status, 0);
    if (!CHECK_EQ(status, 0))
        fprintf(stderr, "rank %d: MPI_Finalize has waited for a child\n", check_rank);
    return check_print_verdict(total + (status != 0));
}
