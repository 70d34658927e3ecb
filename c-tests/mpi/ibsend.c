/* MPI_Ibsend with room for one message: when the receiver has said that it has the message, the
 * room is free again, and the next one must find it. */
#include "check.h"

enum { LENGTH = 16 << 20, ROUNDS = 20, TAG = 5 };

int main(int argc, char **argv)
{
    unsigned char *message, *room;
    int size;
    check_start(&argc, &argv, "ibsend", MPI_THREAD_SINGLE, 2);
    size = LENGTH + MPI_BSEND_OVERHEAD;
    message = malloc(LENGTH);
    room = malloc((size_t)size);
    if (!CHECK(message != NULL && room != NULL))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI(MPI_Buffer_attach(room, size));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int round = 0; round < ROUNDS; round++) {
        doing("round", round);
        if (check_rank == 0) {
            MPI_Request request;
            for (size_t i = 0; i < LENGTH; i++)
                message[i] = pattern((unsigned)round, i);
            if (!MPI(MPI_Ibsend(message, LENGTH, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request)))
                MPI_Abort(MPI_COMM_WORLD, 3);
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
            memset(message, 0, LENGTH);
        } else if (check_rank == 1) {
            size_t wrong = 0;
            MPI(MPI_Recv(message, LENGTH, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (size_t i = 0; i < LENGTH; i++)
                wrong += message[i] != pattern((unsigned)round, i);
            CHECK_EQ(wrong, 0);
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI(MPI_Buffer_detach(&room, &size));
    free(room);
    free(message);
    return check_finish();
}
