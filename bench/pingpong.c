/* MPI messages between two ranks; measure.h says what is measured and printed. Also, where the usnic
 * BTL is there, what it sent on rank 0 for each bandwidth: segments the first time, and again.
 *
 *     resends size=8 segments=.. again=.. */

#include "../c-tests/mpi/pvar.h"
#include "measure.h"
#include "served_by.h"

#define TAG 3
#define TAG_CONTROL 4

static void check_whole(int size)
{
    MPI_Status status;
    int count;
    lay_out(size);
    MPI_Sendrecv(outgoing, size, MPI_BYTE, peer, TAG, incoming, size, MPI_BYTE, peer, TAG,
                 MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    check_bytes(size, count);
}

static double ping_pong(int size, int count)
{
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        if (rank == 0) {
            stamp(outgoing, size, 2 * i);
            MPI_Send(outgoing, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
            MPI_Recv(incoming, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_stamp(incoming, size, 2 * i + 1);
        } else {
            MPI_Recv(incoming, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_stamp(incoming, size, 2 * i);
            stamp(outgoing, size, 2 * i + 1);
            MPI_Send(outgoing, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        }
    }
    return MPI_Wtime() - start;
}

static double stream(int size, int window, int bursts, int posted)
{
    MPI_Request requests[WINDOW_MAX];
    char token = 0;
    double seconds = 0;

    for (int b = 0; b < bursts; b++) {
        if (rank == 0) {
            for (int w = 0; w < window; w++)
                stamp(outgoing + (size_t)w * size, size, b + w);
            if (posted)
                MPI_Recv(&token, 1, MPI_BYTE, peer, TAG_CONTROL, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            double start = MPI_Wtime();
            for (int w = 0; w < window; w++)
                MPI_Isend(outgoing + (size_t)w * size, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                          &requests[w]);
            MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(&token, 1, MPI_BYTE, peer, TAG_CONTROL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            seconds += MPI_Wtime() - start;
        } else {
            for (int w = 0; w < window; w++)
                MPI_Irecv(incoming + (size_t)w * size, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                          &requests[w]);
            if (posted)
                MPI_Send(&token, 1, MPI_BYTE, peer, TAG_CONTROL, MPI_COMM_WORLD);
            MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
            MPI_Send(&token, 1, MPI_BYTE, peer, TAG_CONTROL, MPI_COMM_WORLD);
            for (int w = 0; w < window; w++)
                check_stamp(incoming + (size_t)w * size, size, b + w);
        }
    }
    return seconds;
}

/* A performance variable of the usnic BTL: a value for each of its modules. */
struct counter {
    const char *name;
    MPI_T_pvar_handle handle;
    int values;
    unsigned long long before;
};

static MPI_T_pvar_session session;
static struct counter counters[] = {
    {.name = "btl_usnic_num_total_sends"},
    {.name = "btl_usnic_num_resends"},
    {.name = "btl_usnic_num_ack_sends"},
};
enum { TOTAL, RESENDS, ACKS, COUNTERS };
static int has_counters;

static unsigned long long count_of(const struct counter *counter)
{
    unsigned long long sum = 0, values[counter->values];
    MPI_T_pvar_read(session, counter->handle, values);
    for (int i = 0; i < counter->values; i++)
        sum += values[i];
    return sum;
}

static int open_counter(struct counter *counter)
{
    struct pvar what;
    int index = pvar_named(counter->name, &what);
    return index >= 0 && MPI_T_pvar_handle_alloc(session, index, NULL, &counter->handle,
                                                 &counter->values) == MPI_SUCCESS;
}

static void open_counters(void)
{
    int level;
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &level) != MPI_SUCCESS ||
        MPI_T_pvar_session_create(&session) != MPI_SUCCESS)
        return;
    has_counters = 1;
    for (int i = 0; i < COUNTERS && has_counters; i++)
        has_counters = open_counter(&counters[i]);
}

static void before_stream(void)
{
    for (int i = 0; i < COUNTERS && has_counters; i++)
        counters[i].before = count_of(&counters[i]);
}

static void after_stream(int size)
{
    unsigned long long more[COUNTERS];
    if (!has_counters || rank != 0)
        return;
    for (int i = 0; i < COUNTERS; i++)
        more[i] = count_of(&counters[i]) - counters[i].before;
    printf("resends size=%d segments=%llu again=%llu\n", size,
           more[TOTAL] - more[RESENDS] - more[ACKS], more[RESENDS]);
}

int main(int argc, char **argv)
{
    static const struct medium mpi = {.ping_pong = ping_pong,
                                      .stream = stream,
                                      .check_whole = check_whole,
                                      .before_stream = before_stream,
                                      .after_stream = after_stream};
    char path[4096];
    begin(argc, argv);
    served_by(path, sizeof path);
    say_served(path);
    open_counters();
    return measure(&mpi);
}
