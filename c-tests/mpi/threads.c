/* MPI_THREAD_MULTIPLE with four threads a rank: communicators and tags of their own, shared
 * wildcards, races for the messages of one stream, order, and collectives beside messages.
 *
 * usage: threads [messages of a stream, a multiple of 4 up to 400, the default] */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, LONGEST = 1 << 16, MOST = 400 };

static int messages = MOST;

static int peer;
/* Which way a one-way test goes. */
static bool sender;
static MPI_Comm own[THREADS], shared;

struct start {
    void (*work)(int thread);
    int thread;
};

static void *begin(void *argument)
{
    struct start *start = argument;
    start->work(start->thread);
    return NULL;
}

/* Runs the work in all threads of this rank, with nobody else's messages around. */
static void at_once(const char *what, void (*work)(int thread))
{
    pthread_t threads[THREADS];
    struct start starts[THREADS];
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    doing(what, 0);
    for (int t = 0; t < THREADS; t++) {
        starts[t] = (struct start){ work, t };
        if (!CHECK_EQ(pthread_create(&threads[t], NULL, begin, &starts[t]), 0))
            abort();
    }
    for (int t = 0; t < THREADS; t++)
        CHECK_EQ(pthread_join(threads[t], NULL), 0);
}

static void send_mixed(int mode, const void *buffer, size_t n, int tag, MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int flag = 0;
    switch (mode % 4) {
    case 0: MPI(MPI_Send(buffer, (int)n, MPI_BYTE, peer, tag, comm)); break;
    case 1: MPI(MPI_Ssend(buffer, (int)n, MPI_BYTE, peer, tag, comm)); break;
    case 2: MPI(MPI_Isend(buffer, (int)n, MPI_BYTE, peer, tag, comm, &request)); break;
    default: MPI(MPI_Issend(buffer, (int)n, MPI_BYTE, peer, tag, comm, &request)); break;
    }
    if (mode % 3 == 0)
        while (!flag)
            MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void receive_mixed(int how, void *buffer, size_t n, int tag, MPI_Comm comm)
{
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    int flag = 0;
    switch (how % 5) {
    case 0: MPI(MPI_Recv(buffer, (int)n, MPI_BYTE, peer, tag, comm, &status)); break;
    case 1:
        MPI(MPI_Irecv(buffer, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, tag, comm, &request));
        MPI(MPI_Wait(&request, &status));
        break;
    case 2:
        MPI(MPI_Probe(peer, tag, comm, &status));
        CHECK_STATUS(&status, peer, tag, (int)n);
        MPI(MPI_Recv(buffer, (int)n, MPI_BYTE, peer, tag, comm, &status));
        break;
    case 3:
        while (!flag)
            MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &flag, &status));
        CHECK_STATUS(&status, peer, tag, (int)n);
        MPI(MPI_Recv(buffer, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, tag, comm, &status));
        break;
    default:
        MPI(MPI_Mprobe(peer, tag, comm, &message, &status));
        CHECK_STATUS(&status, peer, tag, (int)n);
        MPI(MPI_Mrecv(buffer, (int)n, MPI_BYTE, &message, &status));
        break;
    }
    CHECK_STATUS(&status, peer, tag, (int)n);
}

static void ping_pong(MPI_Comm comm, int thread, int tag, int rounds)
{
    static const size_t sizes[] = { 0, 1, 64, 300, 4096, 16384, LONGEST };
    unsigned char *out = guarded_new(LONGEST), *in = guarded_new(LONGEST);
    for (int round = 0; round < rounds; round++) {
        size_t n = sizes[(size_t)(round + thread) % (sizeof sizes / sizeof sizes[0])];
        fill(out, n, seed_of(check_rank * THREADS + thread, round, n));
        for (int turn = 0; turn < 2; turn++) {
            if (check_rank % 2 == turn)
                send_mixed(round + thread, out, n, tag, comm);
            else
                receive_mixed(round + turn, in, n, tag, comm);
        }
        VERIFY(in, n, seed_of(peer * THREADS + thread, round, n));
        VERIFY(out, n, seed_of(check_rank * THREADS + thread, round, n));
    }
    GUARDED_FREE(out, LONGEST);
    GUARDED_FREE(in, LONGEST);
}

static void on_own_communicators(int thread)
{
    ping_pong(own[thread], thread, 3, 42);
}

static void on_own_tags(int thread)
{
    ping_pong(shared, thread, 100 + thread, 42);
}

/* Message `number` of a thread's stream: the number, then a pattern. */
static size_t length_of(int number)
{
    return sizeof number + (size_t)(number % 50 == 7 ? 30000 : number * 13 % 400);
}

static void put(unsigned char *buffer, int from, int thread, int number)
{
    size_t n = length_of(number);
    memcpy(buffer, &number, sizeof number);
    fill(buffer + sizeof number, n - sizeof number, seed_of(from * THREADS + thread, number, n));
}

/* Checks a message against the thread whose stream it came from; gives its number. */
static int number_in(const unsigned char *buffer, MPI_Status *status, int thread)
{
    int number;
    memcpy(&number, buffer, sizeof number);
    if (!CHECK(number >= 0 && number < messages))
        return 0;
    CHECK_STATUS(status, peer, status->MPI_TAG, (int)length_of(number));
    VERIFY(buffer + sizeof number, length_of(number) - sizeof number,
           seed_of(peer * THREADS + thread, number, length_of(number)));
    return number;
}

/* Sends a whole stream with several requests open at a time. */
static void send_stream(int thread, int tag)
{
    enum { WINDOW = 8 };
    unsigned char *slots[WINDOW];
    MPI_Request requests[WINDOW];
    for (int i = 0; i < WINDOW; i++) {
        slots[i] = guarded_new(LONGEST);
        requests[i] = MPI_REQUEST_NULL;
    }
    for (int number = 0; number < messages; number++) {
        int slot = number % WINDOW, n = (int)length_of(number);
        MPI(MPI_Wait(&requests[slot], MPI_STATUS_IGNORE));
        put(slots[slot], check_rank, thread, number);
        if (number % 11 == 0)
            MPI(MPI_Issend(slots[slot], n, MPI_BYTE, peer, tag, shared, &requests[slot]));
        else if (number % 5 == 0)
            MPI(MPI_Send(slots[slot], n, MPI_BYTE, peer, tag, shared));
        else
            MPI(MPI_Isend(slots[slot], n, MPI_BYTE, peer, tag, shared, &requests[slot]));
    }
    MPI(MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < WINDOW; i++)
        GUARDED_FREE(slots[i], LONGEST);
}

/* A thread's stream of one tag arrives in the order of sending. */
static void in_order(int thread)
{
    unsigned char *buffer = guarded_new(LONGEST);
    if (sender) {
        send_stream(thread, thread);
    } else {
        for (int number = 0; number < messages; number++) {
            MPI_Status status;
            MPI(MPI_Recv(buffer, LONGEST, MPI_BYTE, number % 3 ? peer : MPI_ANY_SOURCE, thread,
                         shared, &status));
            CHECK_EQ(status.MPI_TAG, thread);
            CHECK_EQ(number_in(buffer, &status, thread), number);
        }
    }
    GUARDED_FREE(buffer, LONGEST);
}

static atomic_int taken[THREADS][MOST];

/* A receiver that takes what comes sees the numbers of each stream grow. */
static void note(int *last, int stream, int number)
{
    CHECK(number > last[stream]);
    last[stream] = number;
    atomic_fetch_add(&taken[stream][number], 1);
}

/* The stream of each sending thread has its own tag; all receivers take anything. */
static void anything(int thread)
{
    int last[THREADS] = { -1, -1, -1, -1 };
    unsigned char *buffer = guarded_new(LONGEST);
    if (sender) {
        send_stream(thread, thread);
    } else {
        for (int i = 0; i < messages; i++) {
            MPI_Status status;
            MPI_Request request;
            if (i % 2) {
                MPI(MPI_Recv(buffer, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, shared,
                             &status));
            } else {
                MPI(MPI_Irecv(buffer, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, shared,
                              &request));
                MPI(MPI_Wait(&request, &status));
            }
            if (CHECK(status.MPI_TAG >= 0 && status.MPI_TAG < THREADS))
                note(last, status.MPI_TAG, number_in(buffer, &status, status.MPI_TAG));
        }
    }
    GUARDED_FREE(buffer, LONGEST);
}

/* All receivers claim messages of one and the same stream. */
static void claims(int thread)
{
    int last[THREADS] = { -1, -1, -1, -1 };
    unsigned char *buffer = guarded_new(LONGEST);
    if (sender) {
        if (thread == 0)
            send_stream(0, 0);
    } else {
        for (int i = 0; i < messages / THREADS; i++) {
            MPI_Message message;
            MPI_Request request;
            MPI_Status status, probed;
            int flag = 0, count = -1;
            if ((thread + i) % 2)
                MPI(MPI_Mprobe(MPI_ANY_SOURCE, 0, shared, &message, &probed));
            else
                while (!flag)
                    MPI(MPI_Improbe(peer, i % 3 ? 0 : MPI_ANY_TAG, shared, &flag, &message,
                                    &probed));
            MPI(MPI_Get_count(&probed, MPI_BYTE, &count));
            if (i % 4) {
                MPI(MPI_Mrecv(buffer, count, MPI_BYTE, &message, &status));
            } else {
                MPI(MPI_Imrecv(buffer, count, MPI_BYTE, &message, &request));
                MPI(MPI_Wait(&request, &status));
            }
            CHECK_STATUS(&status, peer, 0, count);
            note(last, 0, number_in(buffer, &status, 0));
        }
    }
    GUARDED_FREE(buffer, LONGEST);
}

static void check_taken(int streams)
{
    for (int stream = 0; stream < THREADS; stream++)
        for (int number = 0; number < messages; number++)
            CHECK_EQ(atomic_exchange(&taken[stream][number], 0), !sender && stream < streams);
}

/* Each thread works with collectives and new communicators of its own. */
static void collectives(int thread)
{
    for (int round = 0; round < 60; round++) {
        int mine = check_rank + round * thread, sum = -1;
        MPI(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, own[thread]));
        CHECK_EQ(sum, check_size * (check_size - 1) / 2 + check_size * round * thread);
        if (round % 10 == 0) {
            MPI_Comm copy;
            MPI(MPI_Comm_dup(own[thread], &copy));
            ping_pong(copy, thread, 0, 3);
            MPI(MPI_Comm_free(&copy));
        }
        MPI(MPI_Barrier(own[thread]));
    }
}

/* Different kinds of work in the threads of one rank. */
static void mixture(int thread)
{
    switch (thread) {
    case 0: ping_pong(own[0], 0, 1, 42); break;
    case 1: collectives(1); break;
    case 2: in_order(2); break;
    default: ping_pong(shared, 3, 55, 42); break;
    }
}

/* One thread waits for a request whose message another thread of the same rank causes. */
static void wait_for_another(int thread)
{
    for (int round = 0; round < 50; round++) {
        int out = round * 10 + thread, in = -1;
        MPI_Request request;
        MPI_Status status;
        int to = (thread + 1) % THREADS, from = (thread + THREADS - 1) % THREADS;
        if (thread % 2)
            MPI(MPI_Send(&out, 1, MPI_INT, check_rank, 200 + to, shared));
        MPI(MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 200 + thread, shared, &request));
        if (thread % 2 == 0)
            MPI(MPI_Ssend(&out, 1, MPI_INT, check_rank, 200 + to, shared));
        MPI(MPI_Wait(&request, &status));
        CHECK_STATUS(&status, check_rank, 200 + thread, sizeof in);
        CHECK_EQ(in, round * 10 + from);
    }
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "threads", MPI_THREAD_MULTIPLE, 2);
    if (argc > 1)
        messages = atoi(argv[1]);
    if (!CHECK(messages > 0 && messages <= MOST && messages % THREADS == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (!CHECK(check_size % 2 == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (atomic_load(&check_failures) != 0)
        return check_finish();
    peer = check_rank ^ 1;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &shared));
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &own[t]));
    at_once("own communicators", on_own_communicators);
    at_once("own tags", on_own_tags);
    for (int turn = 0; turn < 2; turn++) {
        sender = check_rank % 2 == turn;
        at_once("order of streams", in_order);
        at_once("anything", anything);
        check_taken(THREADS);
        at_once("claims of one stream", claims);
        check_taken(1);
        at_once("mixture", mixture);
    }
    at_once("collectives", collectives);
    at_once("waiting for another thread", wait_for_another);
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Comm_free(&own[t]));
    MPI(MPI_Comm_free(&shared));
    return check_finish();
}
