/* MPI_Cancel and MPI_Request_free: receives without a message, with one, and in the race
 * between; persistent receives; sends, which may ignore the cancel but may not get lost. */
#include "check.h"

enum { DATA = 10, READY = 11, OUTCOME = 12, LONGEST = 4 << 20 };

static const size_t sizes[] = { 0, 8, 129, 300, 70000, LONGEST };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static int peer;
static MPI_Comm comm;
static MPI_Datatype gapped;

static bool was_cancelled(const MPI_Status *status)
{
    int cancelled = -1;
    MPI(MPI_Test_cancelled(status, &cancelled));
    CHECK(cancelled == 0 || cancelled == 1);
    return cancelled == 1;
}

static void finish(int how, MPI_Request *request, MPI_Status *status)
{
    int flag = 0, index = -1;
    switch (how % 4) {
    case 0: MPI(MPI_Wait(request, status)); break;
    case 1:
        while (!flag)
            MPI(MPI_Test(request, &flag, status));
        break;
    case 2: MPI(MPI_Waitall(1, request, status)); break;
    case 3:
        MPI(MPI_Waitany(1, request, &index, status));
        CHECK_EQ(index, 0);
        break;
    }
}

/* Nothing was sent: the cancel must succeed, and the buffer stays as it was. */
static void unmatched(void)
{
    for (int turn = 0; turn < 4 * SIZES * 2; turn++) {
        size_t n = sizes[turn / 8];
        MPI_Datatype type = turn & 4 ? gapped : MPI_BYTE;
        size_t region = type == gapped ? 3 * n : n;
        unsigned char *buffer = guarded_new(region);
        MPI_Request request;
        MPI_Status status;
        doing("cancel without a message", (long long)n);
        MPI(MPI_Irecv(buffer, (int)n, type, turn & 1 ? MPI_ANY_SOURCE : peer,
                      turn & 2 ? MPI_ANY_TAG : DATA, comm, &request));
        MPI(MPI_Cancel(&request));
        CHECK(request != MPI_REQUEST_NULL);
        finish(turn + turn / 4, &request, &status);
        CHECK(was_cancelled(&status));
        CHECK(request == MPI_REQUEST_NULL);
        UNTOUCHED(buffer, buffer + region);
        GUARDED_FREE(buffer, region);
    }
    MPI(MPI_Barrier(comm));
}

/* Every second of many posted receives is cancelled; the messages go to the others in order. */
static void some_of_many(size_t n)
{
    enum { RECEIVES = 40 };
    unsigned char *buffers = guarded_new(RECEIVES * n), *out = guarded_new(n);
    MPI_Request requests[RECEIVES];
    MPI_Status statuses[RECEIVES];
    doing("cancel some of many", (long long)n);
    for (int i = 0; i < RECEIVES; i++) {
        MPI(MPI_Irecv(buffers + (size_t)i * n, (int)n, MPI_BYTE, i % 3 ? peer : MPI_ANY_SOURCE, DATA,
                      comm, &requests[i]));
    }
    for (int i = RECEIVES - 1; i > 0; i -= 2)
        MPI(MPI_Cancel(&requests[i]));
    /* Until the wait a cancelled receive may still match. */
    for (int i = 1; i < RECEIVES; i += 2)
        MPI(MPI_Wait(&requests[i], &statuses[i]));
    MPI(MPI_Barrier(comm));
    for (int i = 0; i < RECEIVES; i += 2) {
        fill(out, n, seed_of(check_rank, i, n));
        MPI(MPI_Send(out, (int)n, MPI_BYTE, peer, DATA, comm));
        if (i % 8 == 0)
            MPI(MPI_Wait(&requests[i], &statuses[i]));
    }
    for (int i = 0; i < RECEIVES; i++) {
        if (requests[i] != MPI_REQUEST_NULL)
            MPI(MPI_Wait(&requests[i], &statuses[i]));
        CHECK_EQ(was_cancelled(&statuses[i]), i % 2);
        if (i % 2) {
            UNTOUCHED(buffers + (size_t)i * n, buffers + (size_t)(i + 1) * n);
        } else {
            CHECK_STATUS(&statuses[i], peer, DATA, (int)n);
            VERIFY(buffers + (size_t)i * n, n, seed_of(peer, i, n));
        }
    }
    GUARDED_FREE(out, n);
    GUARDED_FREE(buffers, RECEIVES * n);
    MPI(MPI_Barrier(comm));
}

/* A synchronous send has completed, so its receive was matched: too late for a cancel. */
static void already_matched(void)
{
    for (int turn = 0; turn < 4 * SIZES; turn++) {
        size_t n = sizes[turn / 4];
        unsigned char *buffer = guarded_new(n);
        MPI_Status status;
        MPI_Request request;
        doing("cancel after the match", (long long)n);
        if ((check_rank + turn) % 2 == 0) {
            fill(buffer, n, seed_of(check_rank, turn, n));
            MPI(MPI_Ssend(buffer, (int)n, MPI_BYTE, peer, DATA, comm));
            send_token(peer, READY, comm);
        } else {
            int flag = 0;
            MPI(MPI_Irecv(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
            await_token(peer, READY, comm);
            while (turn & 2 && !flag)
                MPI(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
            MPI(MPI_Cancel(&request));
            finish(turn / 2, &request, &status);
            CHECK_STATUS(&status, peer, DATA, (int)n);
            VERIFY(buffer, n, seed_of(peer, turn, n));
        }
        GUARDED_FREE(buffer, n);
    }
}

/* The cancel meets a message on its way: either the receive has it, or the next one gets it. */
static void race(void)
{
    enum { ROUNDS = 60 };
    for (int turn = 0; turn < ROUNDS * SIZES; turn++) {
        size_t n = sizes[turn % SIZES];
        unsigned char *buffer;
        if (n == LONGEST && turn >= 10 * SIZES)
            continue;
        buffer = guarded_new(n);
        doing("cancel in the race with the message", (long long)n);
        if (check_rank % 2 == 0) {
            fill(buffer, n, seed_of(check_rank, turn, n));
            await_token(peer, READY, comm);
            MPI(MPI_Send(buffer, (int)n, MPI_BYTE, peer, DATA, comm));
        } else {
            MPI_Request request;
            MPI_Status status;
            int flag = 0;
            MPI(MPI_Irecv(buffer, (int)n, MPI_BYTE, MPI_ANY_SOURCE, DATA, comm, &request));
            send_token(peer, READY, comm);
            for (int i = 0; i < turn / SIZES * 10 && !flag; i++)
                MPI(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
            MPI(MPI_Cancel(&request));
            finish(turn / SIZES, &request, &status);
            if (was_cancelled(&status)) {
                CHECK(!flag);
                UNTOUCHED(buffer, buffer + n);
                MPI(MPI_Recv(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &status));
            }
            CHECK_STATUS(&status, peer, DATA, (int)n);
            VERIFY(buffer, n, seed_of(peer, turn, n));
        }
        GUARDED_FREE(buffer, n);
    }
}

static void persistent(void)
{
    for (int s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        unsigned char *buffer = guarded_new(n);
        MPI_Request request;
        MPI_Status status;
        doing("cancel of a persistent receive", (long long)n);
        if (check_rank % 2 == 0) {
            for (int round = 0; round < 6; round++) {
                fill(buffer, n, seed_of(check_rank, round, n));
                await_token(peer, READY, comm);
                MPI(MPI_Send(buffer, (int)n, MPI_BYTE, peer, DATA, comm));
            }
        } else {
            MPI(MPI_Recv_init(buffer, (int)n, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &request));
            for (int round = 0; round < 6; round++) {
                for (int again = 0; again <= round % 3; again++) {
                    MPI(MPI_Start(&request));
                    MPI(MPI_Cancel(&request));
                    finish(round + again, &request, &status);
                    CHECK(was_cancelled(&status));
                    CHECK(request != MPI_REQUEST_NULL);
                }
                MPI(MPI_Start(&request));
                send_token(peer, READY, comm);
                finish(round, &request, &status);
                CHECK_STATUS(&status, peer, DATA, (int)n);
                VERIFY(buffer, n, seed_of(peer, round, n));
            }
            MPI(MPI_Request_free(&request));
        }
        GUARDED_FREE(buffer, n);
    }
}

enum { PENDING = 1, SYNCHRONOUS = 2, PERSISTENT = 4 };

/* A send may be cancelled or may ignore it; the receiver must get exactly what was not
 * cancelled. Its receive is cancelled in turn when the send was. */
static void sends(void)
{
    for (int turn = 0; turn < 8 * SIZES; turn++) {
        size_t n = sizes[turn / 8];
        unsigned char *buffer = guarded_new(n);
        MPI_Request request;
        MPI_Status status;
        int outcome = -1;
        doing("cancel of a send", (long long)n);
        if (check_rank % 2 == 0) {
            fill(buffer, n, seed_of(check_rank, turn, n));
            if (!(turn & PENDING))
                await_token(peer, READY, comm);
            if (turn & PERSISTENT) {
                if (turn & SYNCHRONOUS)
                    MPI(MPI_Ssend_init(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
                else
                    MPI(MPI_Send_init(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
                MPI(MPI_Start(&request));
            } else if (turn & SYNCHRONOUS) {
                MPI(MPI_Issend(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
            } else {
                MPI(MPI_Isend(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
            }
            for (int i = 0; i < 500 && turn % 3; i++)
                MPI(MPI_Iprobe(peer, OUTCOME, comm, &outcome, MPI_STATUS_IGNORE));
            MPI(MPI_Cancel(&request));
            if (turn & PENDING)
                send_token(peer, READY, comm);
            finish(turn & PERSISTENT ? turn % 2 : turn, &request, &status);
            if (turn & PERSISTENT)
                MPI(MPI_Request_free(&request));
            outcome = was_cancelled(&status);
            MPI(MPI_Send(&outcome, 1, MPI_INT, peer, OUTCOME, comm));
        } else {
            if (turn & PENDING)
                await_token(peer, READY, comm);
            MPI(MPI_Irecv(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
            if (!(turn & PENDING))
                send_token(peer, READY, comm);
            MPI(MPI_Recv(&outcome, 1, MPI_INT, peer, OUTCOME, comm, MPI_STATUS_IGNORE));
            if (outcome == 1)
                MPI(MPI_Cancel(&request));
            finish(turn, &request, &status);
            if (outcome == 1) {
                CHECK(was_cancelled(&status));
            } else {
                CHECK_STATUS(&status, peer, DATA, (int)n);
                VERIFY(buffer, n, seed_of(peer, turn, n));
            }
        }
        GUARDED_FREE(buffer, n);
    }
}

/* Requests freed while active: what they stand for still happens. */
static void freed(void)
{
    for (int turn = 0; turn < 8 * (SIZES - 1); turn++) {
        size_t n = sizes[1 + turn / 8];
        unsigned char *buffer = guarded_new(n);
        MPI_Request request;
        doing("free of an active request", (long long)n);
        if (check_rank % 2 == 0) {
            fill(buffer, n, seed_of(check_rank, turn, n));
            /* The last byte tells that all is there, so it may not look like an untouched one. */
            buffer[n - 1] = (unsigned char)turn;
            await_token(peer, READY, comm);
            if (turn & 2)
                MPI(MPI_Ssend_init(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
            else if (turn & 4)
                MPI(MPI_Issend(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
            else
                MPI(MPI_Isend(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
            if (turn & 2)
                MPI(MPI_Start(&request));
            MPI(MPI_Request_free(&request));
            CHECK(request == MPI_REQUEST_NULL);
            await_token(peer, READY, comm);
        } else if (turn & 1) {
            if (turn & 4) {
                MPI(MPI_Recv_init(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
                MPI(MPI_Start(&request));
            } else {
                MPI(MPI_Irecv(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
            }
            MPI(MPI_Request_free(&request));
            CHECK(request == MPI_REQUEST_NULL);
            send_token(peer, READY, comm);
            for (size_t left = n; left > 0;) {
                int flag;
                MPI(MPI_Iprobe(peer, OUTCOME, comm, &flag, MPI_STATUS_IGNORE));
                if (buffer[n - 1] != (unsigned char)turn)
                    continue;
                /* Bytes may land in any order. */
                while (left > 0 && (left == n || buffer[left - 1] == pattern(seed_of(peer, turn, n), left - 1)))
                    left--;
            }
            send_token(peer, READY, comm);
        } else {
            MPI_Status status;
            send_token(peer, READY, comm);
            MPI(MPI_Recv(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &status));
            CHECK_STATUS(&status, peer, DATA, (int)n);
            VERIFY(buffer, n - 1, seed_of(peer, turn, n));
            CHECK_EQ(buffer[n - 1], (unsigned char)turn);
            send_token(peer, READY, comm);
        }
        GUARDED_FREE(buffer, n);
    }
}

/* Cancelled receives give back what they took. */
static void memory(void)
{
    enum { WARM = 1000, ROUNDS = 10000, LENGTH = 20000, GROWTH_KIB = 1024 };
    unsigned char *buffer = guarded_new(3 * LENGTH);
    long before = 0, growth;
    doing("memory", 0);
    for (int i = 0; i < WARM + ROUNDS; i++) {
        MPI_Request request;
        MPI_Status status;
        if (i == WARM)
            before = resident_kib();
        MPI(MPI_Irecv(buffer, LENGTH, i % 2 ? gapped : MPI_BYTE, peer, DATA, comm, &request));
        MPI(MPI_Cancel(&request));
        MPI(MPI_Wait(&request, &status));
        CHECK(was_cancelled(&status));
    }
    growth = resident_kib() - before;
    if (growth >= GROWTH_KIB)
        doing("memory, KiB grown", growth);
    CHECK(growth < GROWTH_KIB);
    UNTOUCHED(buffer, buffer + 3 * LENGTH);
    GUARDED_FREE(buffer, 3 * LENGTH);
    MPI(MPI_Barrier(comm));
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "cancel", MPI_THREAD_SINGLE, 2);
    if (!CHECK(check_size % 2 == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    peer = check_rank ^ 1;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Type_create_resized(MPI_BYTE, 0, 3, &gapped));
    MPI(MPI_Type_commit(&gapped));
    unmatched();
    for (int s = 1; s < SIZES - 1; s++)
        some_of_many(sizes[s]);
    already_matched();
    race();
    persistent();
    sends();
    freed();
    memory();
    MPI(MPI_Type_free(&gapped));
    MPI(MPI_Comm_free(&comm));
    return check_finish();
}
