/* Messages beyond the provider's longest are refused to a program that handles errors itself, and
 * the program goes on. usage: big BYTES, the provider's longest message
 *
 * Every kind of send is tried one byte above the limit, then at the limit: what arrives must be
 * the messages at the limit, and nothing else. */
#include "../mpi/check.h"

enum { SEND, SSEND, ISEND, ISSEND, START, HOLES, KINDS, TAG = 3 };

static const char *const names[] = {"MPI_Send", "MPI_Ssend", "MPI_Isend", "MPI_Issend", "MPI_Start",
                                    "MPI_Send of a vector"};

static unsigned char byte_at(int kind, int i)
{
    return (unsigned char)(kind * 37 + i * 5 + i / 251);
}

/* Sends this many bytes. A request of a refused send is lost with it. */
static int try(int kind, unsigned char *bytes, int count)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype holes;
    unsigned char *spread;
    int code;

    switch (kind) {
    case SEND:
        return MPI_Send(bytes, count, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    case SSEND:
        return MPI_Ssend(bytes, count, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    case ISEND:
        code = MPI_Isend(bytes, count, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
        return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    case ISSEND:
        code = MPI_Issend(bytes, count, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
        return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    case START:
        MPI(MPI_Send_init(bytes, count, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request));
        code = MPI_Start(&request);
        if (code != MPI_SUCCESS)
            return code;
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI(MPI_Request_free(&request));
        return code;
    default:
        spread = calloc(2, (size_t)count);
        if (spread == NULL)
            abort();
        for (int i = 0; i < count; i++)
            spread[2 * i] = bytes[i];
        MPI(MPI_Type_vector(count, 1, 2, MPI_BYTE, &holes));
        MPI(MPI_Type_commit(&holes));
        code = MPI_Send(spread, 1, holes, 1, TAG, MPI_COMM_WORLD);
        MPI(MPI_Type_free(&holes));
        free(spread);
        return code;
    }
}

static void receive(int kind, unsigned char *bytes, int longest)
{
    MPI_Status status;
    int count, wrong = 0;

    memset(bytes, 0, (size_t)longest + 1);
    MPI(MPI_Recv(bytes, longest + 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &status));
    MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK_EQ(count, longest);
    for (int i = 0; i < longest; i++)
        wrong += bytes[i] != byte_at(kind, i);
    CHECK_EQ(wrong, 0);
}

int main(int argc, char **argv)
{
    int longest = argc > 1 ? atoi(argv[1]) : 0;
    unsigned char *bytes = calloc(1, (size_t)longest + 1);

    if (longest <= 0 || bytes == NULL) {
        fprintf(stderr, "usage: big BYTES\n");
        return 2;
    }
    check_start(&argc, &argv, "big", MPI_THREAD_SINGLE, 2);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int kind = 0; kind < KINDS; kind++) {
        doing(names[kind], longest);
        if (check_rank == 0) {
            for (int i = 0; i <= longest; i++)
                bytes[i] = byte_at(kind, i);
            CHECK(try(kind, bytes, longest + 1) != MPI_SUCCESS);
            MPI(try(kind, bytes, longest));
        } else if (check_rank == 1) {
            receive(kind, bytes, longest);
        }
    }
    free(bytes);
    return check_finish();
}
