/* More receives than a provider takes (2048 in `tcp;ofi_rxm`): the rest waits in the MTL, and whatever is to come
 * comes all the same. Rank 0 with rank 1.
 *
 * usage: full [receives of each kind, default 6000] */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 6, EACH = 800, SAME = 3, LATE = 1 << 15 };

static int many = 6000;

static void *allocated(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL)
        abort();
    return memory;
}

static void post(int *in, int tag, MPI_Comm comm, MPI_Request *request)
{
    *in = -1;
    MPI(MPI_Irecv(in, 1, MPI_INT, 1 - check_rank, tag, comm, request));
}

/* The receives at the front of those that wait get nothing for now, the others their messages in any order: here from
 * the last to the first. */
static void past_those_that_wait(void)
{
    int *in = allocated(2 * (size_t)many, sizeof *in);
    MPI_Request *all = allocated(2 * (size_t)many, sizeof *all), *soon = all + many;
    doing("receives that get nothing for now", many);
    if (check_rank == 0) {
        for (int i = 0; i < many; i++)
            post(&in[i], LATE + i, MPI_COMM_WORLD, &all[i]);
        for (int i = 0; i < many; i++)
            post(&in[many + i], i, MPI_COMM_WORLD, &soon[i]);
        send_token(1, 2 * LATE, MPI_COMM_WORLD);
        MPI(MPI_Waitall(many, soon, MPI_STATUSES_IGNORE));
        doing("receives that get theirs in the end", many);
        send_token(1, 2 * LATE, MPI_COMM_WORLD);
        MPI(MPI_Waitall(many, all, MPI_STATUSES_IGNORE));
        for (int i = 0; i < many; i++) {
            CHECK_EQ(in[i], LATE + i);
            CHECK_EQ(in[many + i], i);
        }
    } else {
        await_token(0, 2 * LATE, MPI_COMM_WORLD);
        for (int i = many - 1; i >= 0; i--)
            MPI(MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_WORLD));
        await_token(0, 2 * LATE, MPI_COMM_WORLD);
        for (int i = LATE; i < LATE + many; i++)
            MPI(MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_WORLD));
    }
    free(all);
    free(in);
}

/* The answer to a synchronous send has to come through as well: what would make room for its receive is sent only
 * when the message has arrived. */
static void synchronous_sends(void)
{
    int *in = allocated((size_t)many, sizeof *in), out[SAME + 1], got;
    MPI_Request *posted = allocated((size_t)many, sizeof *posted), sent[SAME], late;
    doing("synchronous sends beside receives", many);
    if (check_rank == 0) {
        for (int i = 0; i < many; i++)
            post(&in[i], i, MPI_COMM_WORLD, &posted[i]);
        for (int k = 0; k <= SAME; k++)
            out[k] = k;
        MPI(MPI_Issend(&out[SAME], 1, MPI_INT, 1, LATE + 1, MPI_COMM_WORLD, &late));
        for (int k = 0; k < SAME; k++)
            MPI(MPI_Issend(&out[k], 1, MPI_INT, 1, LATE, MPI_COMM_WORLD, &sent[k]));
        MPI(MPI_Ssend(&out[SAME], 1, MPI_INT, 1, LATE, MPI_COMM_WORLD));
        doing("synchronous sends that have been received", SAME);
        MPI(MPI_Waitall(SAME, sent, MPI_STATUSES_IGNORE));
        int early = 1;
        MPI(MPI_Test(&late, &early, MPI_STATUS_IGNORE));
        CHECK_EQ(early, 0);
        send_token(1, 2 * LATE, MPI_COMM_WORLD);
        doing("receives beside synchronous sends", many);
        MPI(MPI_Waitall(many, posted, MPI_STATUSES_IGNORE));
        for (int i = 0; i < many; i++)
            CHECK_EQ(in[i], i);
        MPI(MPI_Wait(&late, MPI_STATUS_IGNORE));
    } else {
        for (int k = 0; k <= SAME; k++) {
            MPI(MPI_Recv(&got, 1, MPI_INT, 0, LATE, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK_EQ(got, k);
        }
        await_token(0, 2 * LATE, MPI_COMM_WORLD);
        for (int i = 0; i < many; i++)
            MPI(MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_WORLD));
        MPI(MPI_Recv(&got, 1, MPI_INT, 0, LATE + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK_EQ(got, SAME);
    }
    free(posted);
    free(in);
}

/* A message that a matched probe has found has to be received as well, blocking or not, short or long. */
static void matched_probes(int length)
{
    char *message = allocated((size_t)length, 1);
    int *in = allocated((size_t)many, sizeof *in);
    MPI_Request *posted = allocated((size_t)many, sizeof *posted), found;
    MPI_Message handle;
    doing("matched probes beside receives", length);
    if (check_rank == 0) {
        for (int i = 0; i < many; i++)
            post(&in[i], i, MPI_COMM_WORLD, &posted[i]);
        for (int way = 0; way < 2; way++) {
            MPI(MPI_Mprobe(1, LATE + way, MPI_COMM_WORLD, &handle, MPI_STATUS_IGNORE));
            message[length - 1] = 0;
            if (way == 0) {
                MPI(MPI_Mrecv(message, length, MPI_CHAR, &handle, MPI_STATUS_IGNORE));
            } else {
                MPI(MPI_Imrecv(message, length, MPI_CHAR, &handle, &found));
                MPI(MPI_Wait(&found, MPI_STATUS_IGNORE));
            }
            CHECK_EQ(message[length - 1], 1 + way);
        }
        send_token(1, 2 * LATE, MPI_COMM_WORLD);
        doing("receives beside matched probes", length);
        MPI(MPI_Waitall(many, posted, MPI_STATUSES_IGNORE));
        for (int i = 0; i < many; i++)
            CHECK_EQ(in[i], i);
    } else {
        for (int way = 0; way < 2; way++) {
            message[length - 1] = (char)(1 + way);
            MPI(MPI_Send(message, length, MPI_CHAR, 0, LATE + way, MPI_COMM_WORLD));
        }
        await_token(0, 2 * LATE, MPI_COMM_WORLD);
        for (int i = 0; i < many; i++)
            MPI(MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_WORLD));
    }
    free(posted);
    free(in);
    free(message);
}

static MPI_Comm lanes[THREADS];

/* Bursts of receives and of sends to the same thread of the other rank, in an order of its own. */
static void *exchange(void *argument)
{
    int lane = (int)(size_t)argument, in[EACH], out[EACH];
    unsigned seed = (unsigned)(check_rank * THREADS + lane);
    MPI_Request received[EACH], sent[EACH];
    for (int round = 0; round < ROUNDS; round++) {
        int posted = 0, started = 0;
        while (posted < EACH || started < EACH) {
            int burst = 1 + rand_r(&seed) % 50;
            bool receives = started == EACH || (posted < EACH && rand_r(&seed) % 3 != 0);
            for (; receives && burst > 0 && posted < EACH; burst--, posted++)
                post(&in[posted], posted, lanes[lane], &received[posted]);
            for (; !receives && burst > 0 && started < EACH; burst--, started++) {
                out[started] = round * EACH + started;
                MPI(MPI_Isend(&out[started], 1, MPI_INT, 1 - check_rank, started, lanes[lane], &sent[started]));
            }
        }
        MPI(MPI_Waitall(EACH, received, MPI_STATUSES_IGNORE));
        MPI(MPI_Waitall(EACH, sent, MPI_STATUSES_IGNORE));
        for (int i = 0; i < EACH; i++)
            CHECK_EQ(in[i], round * EACH + i);
        doing("rounds of threads", round);
    }
    return NULL;
}

static void threads_that_exchange(void)
{
    pthread_t threads[THREADS];
    doing("threads", THREADS);
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &lanes[t]));
    for (size_t t = 0; t < THREADS; t++)
        CHECK_EQ(pthread_create(&threads[t], NULL, exchange, (void *)t), 0);
    for (int t = 0; t < THREADS; t++)
        CHECK_EQ(pthread_join(threads[t], NULL), 0);
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Comm_free(&lanes[t]));
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "full", MPI_THREAD_MULTIPLE, 2);
    if (argc > 1)
        many = atoi(argv[1]);
    if (!CHECK(many >= 1 && many <= LATE))
        MPI_Abort(MPI_COMM_WORLD, 2);
    past_those_that_wait();
    synchronous_sends();
    matched_probes(4);
    matched_probes(30000);
    threads_that_exchange();
    return check_finish();
}
