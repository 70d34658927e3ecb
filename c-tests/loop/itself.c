/* One rank sends itself messages of all forms, checks every byte, and says what the counter of the
 * component `loop` has counted; 0 when there is none. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 21, ROUNDS = 3 };

static unsigned char *out, *in;

static MPI_T_pvar_session session;
static MPI_T_pvar_handle counter = MPI_T_PVAR_HANDLE_NULL;

/* A counter counts from when its handle was made. */
static void begin_to_count(void)
{
    int provided, count;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_get_num(&count);
    for (int i = 0; i < count; i++) {
        char name[256], text[1024];
        int size = sizeof name, text_size = sizeof text, verbosity, class, bind, readonly, continuous;
        int atomic, values;
        MPI_Datatype type;
        MPI_T_enum names;

        if (MPI_T_pvar_get_info(i, name, &size, &verbosity, &class, &type, &names, text, &text_size,
                                &bind, &readonly, &continuous, &atomic) == MPI_SUCCESS &&
            strcmp(name, "btl_loop_fragments") == 0)
            MPI_T_pvar_handle_alloc(session, i, NULL, &counter, &values);
    }
}

static unsigned long long carried(void)
{
    unsigned long long value = 0;

    if (counter != MPI_T_PVAR_HANDLE_NULL) {
        MPI_T_pvar_read(session, counter, &value);
        MPI_T_pvar_handle_free(session, &counter);
    }
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    return value;
}

/* One message of this length, sent by one of the send calls; whether it came as it was. */
static int right(int length, int form)
{
    MPI_Request requests[2];
    MPI_Status status;
    int count;

    for (int i = 0; i < length; i++)
        out[i] = (unsigned char)(i * 31 + length + form);
    memset(in, 0, (size_t)length);
    MPI_Irecv(in, length, MPI_BYTE, 0, form, MPI_COMM_WORLD, &requests[0]);
    if (form == 1)
        MPI_Issend(out, length, MPI_BYTE, 0, form, MPI_COMM_WORLD, &requests[1]);
    else
        MPI_Isend(out, length, MPI_BYTE, 0, form, MPI_COMM_WORLD, &requests[1]);
    MPI_Wait(&requests[0], &status);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Get_count(&status, MPI_BYTE, &count);
    return count == length && memcmp(in, out, (size_t)length) == 0;
}

int main(int argc, char **argv)
{
    static const int lengths[] = {0, 1, 8, 500, 1023, 4095, 4096, 4097, 65536, 100000, LONGEST};
    int wrong = 0;

    MPI_Init(&argc, &argv);
    begin_to_count();
    out = malloc(LONGEST);
    in = malloc(LONGEST);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int form = 0; form < 2; form++)
                if (!right(lengths[i], form)) {
                    printf("wrong: %d bytes, form %d\n", lengths[i], form);
                    wrong++;
                }
    if (wrong == 0)
        printf("PASS itself, carried %llu\n", carried());
    MPI_Finalize();
    return wrong != 0;
}
