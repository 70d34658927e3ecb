/* Point to point: every send mode at the sizes where protocols change, wildcards, messages
 * to oneself, order, completion calls and many outstanding requests.
 *
 * usage: p2p [small]     "small" stops at 4 KiB, for slow providers. */
#include "check.h"

#include <time.h>

enum { DATA = 10, READY = 11, RESULT = 12 };

enum mode {
    SEND, BSEND, RSEND, SSEND,
    ISEND, IBSEND, IRSEND, ISSEND,
    SEND_INIT, BSEND_INIT, RSEND_INIT, SSEND_INIT,
    MODES
};

static const char *const mode_names[MODES] = {
    "Send", "Bsend", "Rsend", "Ssend",
    "Isend", "Ibsend", "Irsend", "Issend",
    "Send_init", "Bsend_init", "Rsend_init", "Ssend_init",
};

static const size_t sizes[] = {
    0, 1, 8, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1256, 1257, 4096,
    65536, 1 << 20, 4 << 20,
};
static size_t size_count = sizeof sizes / sizeof sizes[0];

static int peer;

static void send_as(enum mode mode, void *buffer, int n, int to, int tag, MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    switch (mode) {
    case SEND: MPI(MPI_Send(buffer, n, MPI_BYTE, to, tag, comm)); return;
    case BSEND: MPI(MPI_Bsend(buffer, n, MPI_BYTE, to, tag, comm)); return;
    case RSEND: MPI(MPI_Rsend(buffer, n, MPI_BYTE, to, tag, comm)); return;
    case SSEND: MPI(MPI_Ssend(buffer, n, MPI_BYTE, to, tag, comm)); return;
    case ISEND: MPI(MPI_Isend(buffer, n, MPI_BYTE, to, tag, comm, &request)); break;
    case IBSEND: MPI(MPI_Ibsend(buffer, n, MPI_BYTE, to, tag, comm, &request)); break;
    case IRSEND: MPI(MPI_Irsend(buffer, n, MPI_BYTE, to, tag, comm, &request)); break;
    case ISSEND: MPI(MPI_Issend(buffer, n, MPI_BYTE, to, tag, comm, &request)); break;
    case SEND_INIT: MPI(MPI_Send_init(buffer, n, MPI_BYTE, to, tag, comm, &request)); break;
    case BSEND_INIT: MPI(MPI_Bsend_init(buffer, n, MPI_BYTE, to, tag, comm, &request)); break;
    case RSEND_INIT: MPI(MPI_Rsend_init(buffer, n, MPI_BYTE, to, tag, comm, &request)); break;
    case SSEND_INIT: MPI(MPI_Ssend_init(buffer, n, MPI_BYTE, to, tag, comm, &request)); break;
    case MODES: abort();
    }
    if (mode >= SEND_INIT)
        MPI(MPI_Start(&request));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (mode >= SEND_INIT)
        MPI(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
}

/* One message into a posted receive; every mode is legal then, ready sends included. */
static void one_message(enum mode mode, size_t n, bool sender)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    doing(mode_names[mode], (long long)n);
    if (sender) {
        unsigned char *buffer = guarded_new(n);
        fill(buffer, n, seed_of(check_rank, mode, n));
        await_token(peer, READY, comm);
        send_as(mode, buffer, (int)n, peer, DATA, comm);
        VERIFY(buffer, n, seed_of(check_rank, mode, n));
        GUARDED_FREE(buffer, n);
    } else {
        unsigned char *buffer = guarded_new(n);
        MPI_Request request;
        MPI_Status status;
        MPI(MPI_Irecv(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
        send_token(peer, READY, comm);
        MPI(MPI_Wait(&request, &status));
        CHECK_STATUS(&status, peer, DATA, (int)n);
        VERIFY(buffer, n, seed_of(peer, mode, n));
        GUARDED_FREE(buffer, n);
    }
}

static void all_modes(void)
{
    int space = 2 * (4 << 20) + 64 * MPI_BSEND_OVERHEAD;
    void *bsend_space = malloc((size_t)space);
    MPI(MPI_Buffer_attach(bsend_space, space));
    for (int mode = 0; mode < MODES; mode++) {
        for (size_t s = 0; s < size_count; s++) {
            one_message((enum mode)mode, sizes[s], check_rank % 2 == 0);
            one_message((enum mode)mode, sizes[s], check_rank % 2 == 1);
        }
    }
    MPI(MPI_Buffer_detach(&bsend_space, &space));
    free(bsend_space);
}

/* A persistent pair started again and again with new content; the receive buffer is longer
 * than the message. */
static void persistent_restart(void)
{
    enum { ROUNDS = 20, LONGEST = 5000 };
    static unsigned char out[LONGEST], in[LONGEST + 1];
    static const int lengths[] = { 0, 100, LONGEST };
    for (int l = 0; l < 3; l++) {
        MPI_Request pair[2];
        MPI_Status status[2];
        int n = lengths[l];
        doing("persistent restart", n);
        MPI(MPI_Send_init(out, n, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &pair[0]));
        MPI(MPI_Recv_init(in, n + 1, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &pair[1]));
        for (int round = 0; round < ROUNDS; round++) {
            fill(out, (size_t)n, seed_of(check_rank, round, (size_t)n));
            MPI(MPI_Startall(2, pair));
            MPI(MPI_Waitall(2, pair, status));
            CHECK_STATUS(&status[1], peer, DATA, n);
            VERIFY(in, (size_t)n, seed_of(peer, round, (size_t)n));
        }
        MPI(MPI_Request_free(&pair[0]));
        MPI(MPI_Request_free(&pair[1]));
    }
}

/* A synchronous send may not complete before its receive has been posted. */
static void synchronous_means_matched(size_t n)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    unsigned char *buffer = guarded_new(n);
    struct timespec t;
    double posted, done;
    doing("Issend stays incomplete", (long long)n);
    if (check_rank % 2 == 0) {
        MPI_Request request;
        int flag = 0;
        fill(buffer, n, seed_of(check_rank, DATA, n));
        MPI(MPI_Issend(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
        for (int i = 0; i < 2000 && !flag; i++)
            MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        CHECK_EQ(flag, 0);
        send_token(peer, READY, comm);
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));

        doing("Ssend returns after the receive is posted", (long long)n);
        MPI(MPI_Ssend(buffer, (int)n, MPI_BYTE, peer, DATA, comm));
        clock_gettime(CLOCK_MONOTONIC, &t);
        done = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
        MPI(MPI_Recv(&posted, 1, MPI_DOUBLE, peer, RESULT, comm, MPI_STATUS_IGNORE));
        CHECK(done >= posted);
    } else {
        await_token(peer, READY, comm);
        MPI(MPI_Recv(buffer, (int)n, MPI_BYTE, peer, DATA, comm, MPI_STATUS_IGNORE));
        VERIFY(buffer, n, seed_of(peer, DATA, n));

        /* The pause gives a wrong Ssend the time to return early; a right one passes with
         * or without it. */
        usleep(20000);
        clock_gettime(CLOCK_MONOTONIC, &t);
        posted = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
        MPI(MPI_Recv(buffer, (int)n, MPI_BYTE, peer, DATA, comm, MPI_STATUS_IGNORE));
        VERIFY(buffer, n, seed_of(peer, DATA, n));
        MPI(MPI_Send(&posted, 1, MPI_DOUBLE, peer, RESULT, comm));
    }
    GUARDED_FREE(buffer, n);
}

/* Two synchronous sends with the same tag on two communicators: an acknowledgement must
 * complete its own send only. */
static void synchronous_acks_kept_apart(void)
{
    MPI_Comm other;
    MPI_Request request[2];
    unsigned char byte[2] = { 1, 2 }, got = 0;
    int flag = 0;
    doing("acknowledgements kept apart", 0);
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    if (check_rank % 2 == 0) {
        MPI(MPI_Issend(&byte[0], 1, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &request[0]));
        MPI(MPI_Issend(&byte[1], 1, MPI_BYTE, peer, DATA, other, &request[1]));
        MPI(MPI_Wait(&request[1], MPI_STATUS_IGNORE));
        for (int i = 0; i < 2000 && !flag; i++)
            MPI(MPI_Test(&request[0], &flag, MPI_STATUS_IGNORE));
        CHECK_EQ(flag, 0);
        send_token(peer, READY, other);
        MPI(MPI_Wait(&request[0], MPI_STATUS_IGNORE));
    } else {
        MPI(MPI_Recv(&got, 1, MPI_BYTE, peer, DATA, other, MPI_STATUS_IGNORE));
        CHECK_EQ(got, 2);
        await_token(peer, READY, other);
        MPI(MPI_Recv(&got, 1, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK_EQ(got, 1);
    }
    MPI(MPI_Comm_free(&other));
}

static void sendrecv(void)
{
    for (size_t s = 0; s < size_count; s++) {
        size_t n = sizes[s];
        unsigned char *out = guarded_new(n), *in = guarded_new(n);
        MPI_Status status;
        doing("Sendrecv", (long long)n);
        fill(out, n, seed_of(check_rank, 1, n));
        MPI(MPI_Sendrecv(out, (int)n, MPI_BYTE, peer, DATA, in, (int)n, MPI_BYTE, peer, DATA,
                         MPI_COMM_WORLD, &status));
        CHECK_STATUS(&status, peer, DATA, (int)n);
        VERIFY(in, n, seed_of(peer, 1, n));
        doing("Sendrecv_replace", (long long)n);
        MPI(MPI_Sendrecv_replace(out, (int)n, MPI_BYTE, peer, DATA, MPI_ANY_SOURCE, DATA,
                                 MPI_COMM_WORLD, &status));
        CHECK_STATUS(&status, peer, DATA, (int)n);
        VERIFY(out, n, seed_of(peer, 1, n));
        GUARDED_FREE(out, n);
        GUARDED_FREE(in, n);
    }
}

/* Rank 0 takes everything with both wildcards; the status names the message. */
static void wildcards(void)
{
    enum { ROUNDS = 40 };
    doing("wildcards", 0);
    if (check_rank == 0) {
        unsigned char buffer[600];
        for (int i = 0; i < ROUNDS * (check_size - 1); i++) {
            MPI_Status status;
            MPI(MPI_Recv(buffer, sizeof buffer, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                         MPI_COMM_WORLD, &status));
            int round = status.MPI_TAG - 1000;
            CHECK(round >= 0 && round < ROUNDS);
            size_t n = (size_t)(round * 13);
            CHECK_STATUS(&status, status.MPI_SOURCE, 1000 + round, (int)n);
            VERIFY(buffer, n, seed_of(status.MPI_SOURCE, status.MPI_TAG, n));
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int from = 1; from < check_size; from++) {
            MPI_Status status;
            MPI(MPI_Recv(buffer, sizeof buffer, MPI_BYTE, MPI_ANY_SOURCE, from,
                         MPI_COMM_WORLD, &status));
            CHECK_STATUS(&status, from, from, 5);
            MPI(MPI_Recv(buffer, sizeof buffer, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD,
                         &status));
            CHECK_STATUS(&status, from, 500 + from, 6);
        }
    } else {
        unsigned char buffer[600];
        for (int round = 0; round < ROUNDS; round++) {
            size_t n = (size_t)(round * 13);
            fill(buffer, n, seed_of(check_rank, 1000 + round, n));
            MPI(MPI_Send(buffer, (int)n, MPI_BYTE, 0, 1000 + round, MPI_COMM_WORLD));
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Send(buffer, 5, MPI_BYTE, 0, check_rank, MPI_COMM_WORLD));
        MPI(MPI_Send(buffer, 6, MPI_BYTE, 0, 500 + check_rank, MPI_COMM_WORLD));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* MPI_ANY_TAG must not match collective traffic, which uses negative tags. */
static void any_tag_and_collectives(void)
{
    unsigned char byte = 0;
    MPI_Request request;
    MPI_Status status;
    int sum = 0, one = 1;
    doing("ANY_TAG receive open across collectives", 0);
    MPI(MPI_Irecv(&byte, 1, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
    for (int i = 0; i < 10; i++) {
        MPI(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        CHECK_EQ(sum, check_size);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    unsigned char mine = (unsigned char)(check_rank + 1);
    MPI(MPI_Send(&mine, 1, MPI_BYTE, peer, 77, MPI_COMM_WORLD));
    MPI(MPI_Wait(&request, &status));
    CHECK_STATUS(&status, peer, 77, 1);
    CHECK_EQ(byte, peer + 1);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void to_myself(MPI_Comm comm, int me)
{
    for (size_t s = 0; s < size_count; s++) {
        size_t n = sizes[s];
        unsigned char *out = guarded_new(n), *in = guarded_new(n);
        MPI_Request request[2];
        MPI_Status status;
        int flag = 0;
        fill(out, n, seed_of(check_rank, 2, n));

        doing("message to myself, receive first", (long long)n);
        MPI(MPI_Irecv(in, (int)n, MPI_BYTE, me, DATA, comm, &request[0]));
        MPI(MPI_Send(out, (int)n, MPI_BYTE, me, DATA, comm));
        MPI(MPI_Wait(&request[0], &status));
        CHECK_STATUS(&status, me, DATA, (int)n);
        VERIFY(in, n, seed_of(check_rank, 2, n));

        doing("message to myself, send first", (long long)n);
        memset(in, 0, n);
        MPI(MPI_Isend(out, (int)n, MPI_BYTE, me, DATA, comm, &request[0]));
        MPI(MPI_Issend(out, (int)n, MPI_BYTE, me, READY, comm, &request[1]));
        while (!flag)
            MPI(MPI_Iprobe(MPI_ANY_SOURCE, READY, comm, &flag, &status));
        CHECK_STATUS(&status, me, READY, (int)n);
        MPI(MPI_Recv(in, (int)n, MPI_BYTE, MPI_ANY_SOURCE, READY, comm, &status));
        CHECK_STATUS(&status, me, READY, (int)n);
        VERIFY(in, n, seed_of(check_rank, 2, n));
        memset(in, 0, n);
        MPI(MPI_Recv(in, (int)n, MPI_BYTE, me, MPI_ANY_TAG, comm, &status));
        CHECK_STATUS(&status, me, DATA, (int)n);
        VERIFY(in, n, seed_of(check_rank, 2, n));
        MPI(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));

        doing("message to myself, Ssend and Sendrecv", (long long)n);
        MPI(MPI_Irecv(in, (int)n, MPI_BYTE, MPI_ANY_SOURCE, DATA, comm, &request[0]));
        MPI(MPI_Ssend(out, (int)n, MPI_BYTE, me, DATA, comm));
        MPI(MPI_Wait(&request[0], &status));
        CHECK_STATUS(&status, me, DATA, (int)n);
        MPI(MPI_Sendrecv(out, (int)n, MPI_BYTE, me, DATA, in, (int)n, MPI_BYTE, me, DATA, comm,
                         &status));
        CHECK_STATUS(&status, me, DATA, (int)n);
        VERIFY(in, n, seed_of(check_rank, 2, n));
        GUARDED_FREE(out, n);
        GUARDED_FREE(in, n);
    }
    /* The wildcards above would take what a faster rank sends in the next test. */
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void to_nobody(void)
{
    unsigned char byte = 9;
    MPI_Status status;
    doing("MPI_PROC_NULL", 0);
    MPI(MPI_Ssend(&byte, 1, MPI_BYTE, MPI_PROC_NULL, DATA, MPI_COMM_WORLD));
    MPI(MPI_Recv(&byte, 1, MPI_BYTE, MPI_PROC_NULL, DATA, MPI_COMM_WORLD, &status));
    CHECK_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    CHECK_EQ(byte, 9);
}

/* Messages of one tag arrive in the order of sending, whatever their sizes and modes. */
static void order(void)
{
    enum { MESSAGES = 300, LONGEST = 70000 };
    static const size_t lengths[] = { 8, LONGEST, 64, 300, 8, 2000, 129, 20000 };
    static unsigned char buffer[LONGEST];
    MPI_Comm comm = MPI_COMM_WORLD;
    doing("order", 0);
    for (int sender = 0; sender < 2; sender++) {
        for (int i = 0; i < MESSAGES; i++) {
            size_t n = lengths[i % 8];
            doing("order", i);
            if (check_rank % 2 == sender) {
                fill(buffer, n, seed_of(check_rank, i, n));
                send_as(i % 5 == 0 ? SSEND : i % 3 == 0 ? ISEND : SEND, buffer, (int)n, peer,
                        DATA, comm);
            } else {
                MPI_Status status;
                MPI(MPI_Recv(buffer, LONGEST, MPI_BYTE, i % 2 ? peer : MPI_ANY_SOURCE,
                             i % 3 ? DATA : MPI_ANY_TAG, comm, &status));
                CHECK_STATUS(&status, peer, DATA, (int)n);
                VERIFY(buffer, n, seed_of(peer, i, n));
            }
        }
        MPI(MPI_Barrier(comm));
    }
}

enum { OUTSTANDING = 256, SLOT = 700 };

/* Many requests open at once, received in the opposite order of sending, completed by each
 * of the completion calls. */
static void outstanding(int how)
{
    static unsigned char out[OUTSTANDING][SLOT], in[OUTSTANDING][SLOT];
    static MPI_Request sends[OUTSTANDING], receives[OUTSTANDING];
    static MPI_Status statuses[OUTSTANDING];
    static int indices[OUTSTANDING];
    static bool seen[OUTSTANDING];
    static const char *const names[] = { "Waitall", "Waitany", "Waitsome",
                                         "Testall", "Testany", "Testsome" };
    int left = OUTSTANDING;
    doing(names[how], OUTSTANDING);
    memset(in, 0, sizeof in);
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < OUTSTANDING; i++) {
        MPI(MPI_Irecv(in[i], SLOT, MPI_BYTE, peer, 2000 + i, MPI_COMM_WORLD, &receives[i]));
    }
    for (int i = OUTSTANDING - 1; i >= 0; i--) {
        size_t n = (size_t)(i * 5 % SLOT);
        fill(out[i], n, seed_of(check_rank, i, n));
        if (i % 4 == 0)
            MPI(MPI_Issend(out[i], (int)n, MPI_BYTE, peer, 2000 + i, MPI_COMM_WORLD, &sends[i]));
        else
            MPI(MPI_Isend(out[i], (int)n, MPI_BYTE, peer, 2000 + i, MPI_COMM_WORLD, &sends[i]));
    }
    while (left > 0) {
        int done = 0, flag = 0;
        if (how == 0) {
            MPI(MPI_Waitall(OUTSTANDING, receives, statuses));
            done = OUTSTANDING;
        } else if (how == 1) {
            MPI(MPI_Waitany(OUTSTANDING, receives, &indices[0], &statuses[0]));
            done = 1;
        } else if (how == 2) {
            MPI(MPI_Waitsome(OUTSTANDING, receives, &done, indices, statuses));
        } else if (how == 3) {
            MPI(MPI_Testall(OUTSTANDING, receives, &flag, statuses));
            done = flag ? OUTSTANDING : 0;
        } else if (how == 4) {
            MPI(MPI_Testany(OUTSTANDING, receives, &indices[0], &flag, &statuses[0]));
            done = flag ? 1 : 0;
        } else {
            MPI(MPI_Testsome(OUTSTANDING, receives, &done, indices, statuses));
        }
        for (int d = 0; d < done; d++) {
            int i = how % 3 == 0 ? d : indices[d];
            if (!CHECK(i >= 0 && i < OUTSTANDING) || !CHECK(!seen[i]))
                continue;
            size_t n = (size_t)(i * 5 % SLOT);
            seen[i] = true;
            CHECK_STATUS(&statuses[d], peer, 2000 + i, (int)n);
            VERIFY(in[i], n, seed_of(peer, i, n));
        }
        left -= done;
    }
    MPI(MPI_Waitall(OUTSTANDING, sends, MPI_STATUSES_IGNORE));
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "p2p", MPI_THREAD_SINGLE, 2);
    if (argc > 1 && strcmp(argv[1], "small") == 0)
        size_count -= 3;
    if (!CHECK(check_size % 2 == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    peer = check_rank ^ 1;
    all_modes();
    persistent_restart();
    for (size_t s = 0; s < size_count; s += 2)
        synchronous_means_matched(sizes[s]);
    synchronous_acks_kept_apart();
    sendrecv();
    wildcards();
    any_tag_and_collectives();
    to_myself(MPI_COMM_WORLD, check_rank);
    to_myself(MPI_COMM_SELF, 0);
    to_nobody();
    order();
    for (int how = 0; how < 6; how++)
        outstanding(how);
    return check_finish();
}
