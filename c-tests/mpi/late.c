/* The last rank stops itself behind MPI_Init, before anybody has sent anything, as a debugger stops it; the others send to it, and
 * wait for its answer. When it goes on it sends and receives.
 *
 * usage: late */
#include "check.h"
#include <signal.h>

enum { TAG = 3, LENGTH = 1 << 16 };

int main(int argc, char **argv)
{
    static unsigned char out[LENGTH], in[LENGTH];
    int last, peer;

    check_start(&argc, &argv, "late", MPI_THREAD_SINGLE, 2);
    last = check_size - 1;
    if (check_rank == last) {
        printf("rank %d stops\n", last);
        fflush(stdout);
        doing("stopped", 0);
        raise(SIGSTOP);
    }
    for (size_t i = 0; i < LENGTH; i++)
        out[i] = pattern((unsigned)check_rank, i);
    for (int other = 0; other < last; other++) {
        if (check_rank != other && check_rank != last)
            continue;
        peer = check_rank == last ? other : last;
        doing("exchanging with", peer);
        MPI(MPI_Sendrecv(out, LENGTH, MPI_BYTE, peer, TAG, in, LENGTH, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (size_t i = 0; i < LENGTH; i++)
            if (!CHECK(in[i] == pattern((unsigned)peer, i)))
                break;
    }
    return check_finish();
}
