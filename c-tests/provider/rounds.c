/* Messages of every kind over a provider that fails (faulty.c), with errors returned.
 *
 *     rounds WAY FAULTS SIDE [again] [CLASS]
 *
 * WAY     send, isend, ssend, issend, probe, mrecv, or behind: what is received first is sent last, with so much before
 *         it that the provider reads on only when that is taken over
 * FAULTS  operations of rank 0 (SIDE `send`) or of rank 1 (SIDE `receive`, `probe`) that must fail
 * again   what fails did not go out, and is sent again
 * CLASS   truncate: the failures are of that class
 *
 * All else must arrive, whole and in order, and both ranks must come to their end. A watchdog counts
 * rounds: it ends the job when none is over for two minutes. */
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 60, LONGEST = 200000, TAG = 5, BEFORE = 100 };

static const int sizes[] = { 0, 8, 100, 5000, LONGEST };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static unsigned char bytes[LONGEST];
static int before[BEFORE];
static const char *way;
static int rank, wrong, faults, bad_class;
static bool again, truncated;
static volatile int rounds_done;

static void *watch(void *unused)
{
    (void)unused;
    for (int before = rounds_done, idle = 0; idle < 120; idle++) {
        sleep(1);
        if (before != rounds_done) {
            before = rounds_done;
            idle = 0;
        }
    }
    fprintf(stderr, "watchdog: rounds %s: rank %d hung in round %d\n", way, rank, rounds_done);
    _exit(3);
}

static void expect(bool right, const char *what, int round)
{
    if (!right) {
        fprintf(stderr, "rank %d, round %d: %s\n", rank, round, what);
        wrong++;
    }
}

/* Notes a failure; whether it was one. */
static bool is_fault(int code)
{
    int class = MPI_SUCCESS;
    if (code == MPI_SUCCESS)
        return false;
    MPI_Error_class(code, &class);
    faults++;
    bad_class += truncated != (class == MPI_ERR_TRUNCATE);
    return true;
}

static int finish(int code, MPI_Request *request, MPI_Status *status)
{
    return code == MPI_SUCCESS ? MPI_Wait(request, status) : code;
}

static int send_once(int size)
{
    MPI_Request request;
    if (strcmp(way, "isend") == 0)
        return finish(MPI_Isend(bytes, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request), &request, MPI_STATUS_IGNORE);
    if (strcmp(way, "issend") == 0)
        return finish(MPI_Issend(bytes, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request), &request, MPI_STATUS_IGNORE);
    if (strcmp(way, "ssend") == 0)
        return MPI_Ssend(bytes, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    return MPI_Send(bytes, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
}

/* Short messages with tags of their own, and then the one of the round. */
static void send_behind(int round, int size)
{
    MPI_Request requests[BEFORE];
    for (int i = 0; i < BEFORE; i++) {
        before[i] = round * BEFORE + i;
        is_fault(MPI_Isend(&before[i], 1, MPI_INT, 1, TAG + 1 + i, MPI_COMM_WORLD, &requests[i]));
    }
    is_fault(send_once(size));
    MPI_Waitall(BEFORE, requests, MPI_STATUSES_IGNORE);
}

static void receive_behind(int round)
{
    for (int i = BEFORE - 1; i >= 0; i--) {
        int found = -1;
        if (!is_fault(MPI_Recv(&found, 1, MPI_INT, 0, TAG + 1 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE)))
            expect(found == round * BEFORE + i, "another message", round);
    }
}

static void send_round(int round, int size)
{
    memset(bytes, round + 1, (size_t)size);
    if (strcmp(way, "behind") == 0) {
        send_behind(round, size);
        return;
    }
    while (is_fault(send_once(size)) && again) {
    }
}

static int receive_once(int size, MPI_Status *status)
{
    MPI_Request request;
    MPI_Message message;
    int flag = 0;
    if (strcmp(way, "mrecv") == 0) {
        while (is_fault(MPI_Improbe(0, TAG, MPI_COMM_WORLD, &flag, &message, status)) || !flag) {
        }
        return MPI_Mrecv(bytes, LONGEST, MPI_BYTE, &message, status);
    }
    if (strcmp(way, "probe") == 0) {
        while (is_fault(MPI_Iprobe(0, TAG, MPI_COMM_WORLD, &flag, status)) || !flag) {
        }
    }
    return finish(MPI_Irecv(bytes, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request), &request, status);
}

static void receive_round(int round, int size)
{
    MPI_Status status;
    int count = -1;
    bool failed;
    memset(bytes, 0, (size_t)size);
    do
        failed = is_fault(receive_once(size, &status));
    while (failed && again);
    if (strcmp(way, "behind") == 0)
        receive_behind(round);
    if (failed)
        return;
    MPI_Get_count(&status, MPI_BYTE, &count);
    expect(count == size && status.MPI_SOURCE == 0 && status.MPI_TAG == TAG, "another message", round);
    for (int i = 0; i < size; i++) {
        if (bytes[i] != round + 1) {
            expect(false, "other bytes", round);
            break;
        }
    }
}

int main(int argc, char **argv)
{
    int expected, all;
    pthread_t watcher;
    if (argc < 4)
        return 2;
    way = argv[1];
    for (int i = 4; i < argc; i++) {
        again |= strcmp(argv[i], "again") == 0;
        truncated |= strcmp(argv[i], "truncate") == 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    pthread_create(&watcher, NULL, watch, NULL);
    expected = rank == (strcmp(argv[3], "send") != 0) ? atoi(argv[2]) : 0;
    for (int round = 0; round < ROUNDS; round++) {
        int size = sizes[round % SIZES];
        if (rank == 0)
            send_round(round, size);
        else
            receive_round(round, size);
        rounds_done++;
    }
    expect(faults == expected, "another number of faults", faults);
    expect(bad_class == 0, "failures of another class", bad_class);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0 && all == 0)
        puts("PASS rounds");
    return all != 0;
}
