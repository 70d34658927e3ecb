/* Rank 0 closes the UDP sockets that it finds in its process, which are not its own, as closefrom(3) would, and both
 * ranks go on with their messages. The job cannot; it has to end, and to say why.
 *
 * usage: closesock close|replace     whether another file comes in their place */
#include "check.h"

#include <fcntl.h>
#include <sys/socket.h>

enum { LONG = 70000, ROUNDS = 60, MOST = 1024 };

static unsigned char in[LONG], out[LONG];

static void traffic(int other)
{
    static const int sizes[] = {8, 0, 300, 5000, LONG};
    for (int n = 0; n < ROUNDS; n++) {
        int size = sizes[n % 5];
        doing("round", n);
        MPI(MPI_Sendrecv(out, size, MPI_BYTE, other, n, in, LONG, MPI_BYTE, other, n, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE));
    }
}

static int option(int descriptor, int which)
{
    int value = -1;
    socklen_t size = sizeof value;
    return getsockopt(descriptor, SOL_SOCKET, which, &value, &size) == 0 ? value : -1;
}

int main(int argc, char **argv)
{
    int closed = 0;
    check_start(&argc, &argv, "closesock", MPI_THREAD_SINGLE, 2);
    if (!CHECK(argc == 2))
        MPI_Abort(MPI_COMM_WORLD, 2);
    traffic(check_rank ^ 1);
    for (int descriptor = 3; check_rank == 0 && descriptor < MOST; descriptor++) {
        if (option(descriptor, SO_TYPE) != SOCK_DGRAM || option(descriptor, SO_DOMAIN) != AF_INET)
            continue;
        closed++;
        if (strcmp(argv[1], "replace") == 0) {
            int null = open("/dev/null", O_RDWR);
            CHECK(null >= 0 && dup2(null, descriptor) == descriptor && close(null) == 0);
        } else {
            CHECK(close(descriptor) == 0);
        }
    }
    CHECK(check_rank != 0 || closed > 0);
    traffic(check_rank ^ 1);
    return check_finish();
}
