/* Communicators made from groups over a provider that does not take the first receives outside tag matching
 * (faulty.c): the first communicator is refused, the second one carries messages. */
#include <mpi.h>
#include <stdio.h>

int main(void)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm first = MPI_COMM_NULL, second = MPI_COMM_NULL;
    int rank, out, in = -1;

    if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS ||
        MPI_Group_from_session_pset(session, "mpi://WORLD", &group) != MPI_SUCCESS)
        return 1;
    if (MPI_Comm_create_from_group(group, "first", MPI_INFO_NULL, MPI_ERRORS_RETURN, &first) == MPI_SUCCESS) {
        fprintf(stderr, "the first communicator was made\n");
        return 1;
    }
    if (MPI_Comm_create_from_group(group, "second", MPI_INFO_NULL, MPI_ERRORS_RETURN, &second) != MPI_SUCCESS) {
        fprintf(stderr, "the second communicator was not made\n");
        return 1;
    }
    MPI_Comm_rank(second, &rank);
    out = 10 + rank;
    if (MPI_Sendrecv(&out, 1, MPI_INT, 1 - rank, 3, &in, 1, MPI_INT, 1 - rank, 3, second, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS || in != 11 - rank) {
        fprintf(stderr, "rank %d has received %d\n", rank, in);
        return 1;
    }
    MPI_Group_free(&group);
    MPI_Comm_free(&second);
    MPI_Session_finalize(&session);
    if (rank == 0)
        printf("PASS groups\n");
    return 0;
}
