/* What has the verbs component count what it counts seldom, each time in a way that leaves no choice. Last it says what was counted.
 *
 * usage: counted ring            a message goes round by all ranks: of two that are connected one alone has sent
 *        counted burst PATH FIRST SECOND LENGTH
 *                                2 ranks: rank 0 begins FIRST sends of LENGTH bytes and makes no progress meanwhile; when those are
 *                                received, SECOND more, while rank 1 is outside of MPI until there is a file PATH. Of either it says
 *                                `burst NUMBER NAME VALUE` for what has been counted while it was begun
 *        counted stream ROUNDS LENGTH
 *                                2 ranks: rank 0 sends so many messages of LENGTH bytes; rank 1 says what was counted when it has
 *                                had them all, before rank 0 sends anything more, and rank 0 after that
 *        counted recall          all other ranks are connected to rank 0, and rank 1 sends to it until rank 0 has asked for credits */
#include "check.h"
#include "counters.h"

#include <sys/stat.h>

enum { TAG = 6, TAG_READY, WAVE = 50, MOST = 65536 };

static unsigned char out[MOST], in[MOST];

/* --- ring */

static void ring(void)
{
    int next = (check_rank + 1) % check_size, previous = (check_rank + check_size - 1) % check_size, token = 1;
    doing("ring", 0);
    if (check_rank == 0)
        MPI(MPI_Send(&token, 1, MPI_INT, next, TAG, MPI_COMM_WORLD));
    MPI(MPI_Recv(&token, 1, MPI_INT, previous, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK_EQ(token, check_rank == 0 ? check_size : check_rank);
    token++;
    if (check_rank != 0)
        MPI(MPI_Send(&token, 1, MPI_INT, next, TAG, MPI_COMM_WORLD));
}

/* --- bursts */

static const char *const stalls[] = {"num_stalls_connection", "num_stalls_credit", "num_stalls_slot", "num_stalls_buffer"};
enum { STALLS = sizeof stalls / sizeof *stalls };

/* Rank 0 begins so many at once, and then lets rank 1 go on. */
static void burst(int number, int count, int length, const char *path)
{
    MPI_Request *requests = malloc((size_t)count * sizeof *requests);
    unsigned long long before[STALLS];
    doing("burst", number);
    fill(out, (size_t)length, (unsigned)number);
    for (int i = 0; i < STALLS; i++)
        before[i] = counters_now(stalls[i]);
    for (int i = 0; i < count; i++)
        MPI(MPI_Isend(out, length, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]));
    for (int i = 0; i < STALLS; i++)
        printf("burst %d %s %llu\n", number, stalls[i], counters_now(stalls[i]) - before[i]);
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    if (path != NULL && CHECK(file != NULL))
        fclose(file);
    MPI(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
    free(requests);
}

static void take(int number, int count, int length)
{
    for (int i = 0; i < count; i++) {
        doing("take", i);
        memset(in, 0, (size_t)length);
        MPI(MPI_Recv(in, length, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        VERIFY(in, (size_t)length, (unsigned)number);
    }
}

static void two_bursts(const char *path, int first, int second, int length)
{
    struct stat status;
    if (check_rank == 0) {
        burst(1, first, length, NULL);
        await_token(1, TAG_READY, MPI_COMM_WORLD);
        burst(2, second, length, path);
    } else if (check_rank == 1) {
        take(1, first, length);
        send_token(0, TAG_READY, MPI_COMM_WORLD);
        doing("outside", 0);
        while (stat(path, &status) != 0)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        take(2, second, length);
    }
}

/* --- stream */

static void stream(int rounds, int length)
{
    for (int round = 0; round < rounds && check_rank == 0; round++) {
        doing("message", round);
        fill(out, (size_t)length, (unsigned)round);
        MPI(MPI_Send(out, length, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
    }
    for (int round = 0; round < rounds && check_rank == 1; round++) {
        doing("message", round);
        memset(in, 0, (size_t)length);
        MPI(MPI_Recv(in, length, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        VERIFY(in, (size_t)length, (unsigned)round);
    }
    if (check_rank == 0)
        await_token(1, TAG_READY, MPI_COMM_WORLD);
    counters_print();
    if (check_rank == 1)
        send_token(0, TAG_READY, MPI_COMM_WORLD);
}

/* --- recall */

static void meet_rank_0(void)
{
    for (int other = 1; other < check_size; other++) {
        if (check_rank == 0)
            await_token(other, TAG, MPI_COMM_WORLD);
        if (check_rank == other)
            send_token(0, TAG, MPI_COMM_WORLD);
    }
}

static void recall(void)
{
    MPI_Request requests[WAVE];
    int go_on = 1;
    meet_rank_0();
    for (int wave = 0; check_rank < 2 && go_on; wave++) {
        doing("wave", wave);
        for (int i = 0; i < WAVE; i++) {
            if (check_rank == 1)
                MPI(MPI_Isend(out, 1000, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]));
            else
                MPI(MPI_Irecv(in + i * 1000, 1000, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]));
        }
        MPI(MPI_Waitall(WAVE, requests, MPI_STATUSES_IGNORE));
        go_on = check_rank == 0 && counters_now("num_recalls") == 0;
        if (check_rank == 0)
            MPI(MPI_Send(&go_on, 1, MPI_INT, 1, TAG_READY, MPI_COMM_WORLD));
        else
            MPI(MPI_Recv(&go_on, 1, MPI_INT, 0, TAG_READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "counted", MPI_THREAD_SINGLE, 2);
    counters_begin("btl_verbs_");
    if (argc == 2 && strcmp(argv[1], "ring") == 0)
        ring();
    else if (argc == 2 && strcmp(argv[1], "recall") == 0)
        recall();
    else if (argc == 6 && strcmp(argv[1], "burst") == 0 && atoi(argv[5]) <= MOST)
        two_bursts(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    else if (argc == 4 && strcmp(argv[1], "stream") == 0 && atoi(argv[3]) <= MOST)
        stream(atoi(argv[2]), atoi(argv[3]));
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (strcmp(argv[1], "stream") != 0)
        counters_print();
    return check_finish();
}
