/* Rank 1 writes rubbish over its shared memory, where rank 0 looks for messages, and goes on living. Rank 0 has to
 * see it, and to be told that the peer is lost; nothing else may happen to it.
 *
 * usage: rubbish BYTE     the rubbish, as a number */
#include "../mpi/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { TAG = 7, ROUNDS = 20, FIRST_RINGS = 64 << 10, MOST = 4096 };

/* The descriptor of this process's segment. */
static int segment(void)
{
    char path[64], name[256];
    for (int descriptor = 3; descriptor < MOST; descriptor++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(path, name, sizeof name - 1);
        if (length <= 0)
            continue;
        name[length] = '\0';
        if (strstr(name, "hawser smcuda") != NULL && strstr(name, "door") == NULL)
            return descriptor;
    }
    return -1;
}

int main(int argc, char **argv)
{
    int peer, number = 0, code = MPI_SUCCESS;

    check_start(&argc, &argv, "rubbish", MPI_THREAD_SINGLE, 2);
    if (!CHECK(argc == 2))
        MPI_Abort(MPI_COMM_WORLD, 2);
    peer = check_rank ^ 1;
    for (int round = 0; round < ROUNDS; round++)
        MPI(MPI_Sendrecv(&round, 1, MPI_INT, peer, TAG, &number, 1, MPI_INT, peer, TAG, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE));
    printf("rank %d pid %d\n", check_rank, (int)getpid());
    fflush(stdout);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (check_rank == 1) {
        int descriptor = segment();
        if (!CHECK(descriptor >= 0))
            MPI_Abort(MPI_COMM_WORLD, 2);
        size_t length = FIRST_RINGS + (4 << 20);
        unsigned char *all = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (!CHECK(all != MAP_FAILED))
            MPI_Abort(MPI_COMM_WORLD, 2);
        memset(all + 8192, atoi(argv[1]), length - 8192);
        for (;;)
            pause();
    }
    doing("waiting for rank 1", 0);
    code = MPI_Recv(&number, 1, MPI_INT, 1, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("rank 0 has %s\n", code == MPI_SUCCESS ? "a message that nobody sent" : "an error");
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
