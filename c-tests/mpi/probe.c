/* Probe and Iprobe, Mprobe and Improbe with Mrecv and Imrecv: hits and misses with and without
 * wildcards, messages taken out of matching, synchronous sends, MPI_PROC_NULL and memory. */
#include "check.h"

#include <time.h>

enum { DATA = 10, OTHER = 11, READY = 12, RESULT = 13, MISSES = 200 };

static const size_t sizes[] = { 0, 8, 100, 300, 5000, 65536, 1 << 20 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* What a probe may ask for; all of these match a message of the peer with tag DATA. */
enum { SELECTORS = 4 };

static int peer;

static int source_of(int selector)
{
    return selector & 1 ? MPI_ANY_SOURCE : peer;
}

static int tag_of(int selector)
{
    return selector & 2 ? MPI_ANY_TAG : DATA;
}

static void expect_nothing(int source, int tag, MPI_Comm comm)
{
    for (int i = 0; i < MISSES; i++) {
        MPI_Message message = MPI_MESSAGE_NULL;
        int flag = -1;
        MPI(MPI_Iprobe(source, tag, comm, &flag, MPI_STATUS_IGNORE));
        CHECK_EQ(flag, 0);
        flag = -1;
        MPI(MPI_Improbe(source, tag, comm, &flag, &message, MPI_STATUS_IGNORE));
        CHECK_EQ(flag, 0);
    }
}

/* Probes do not consume, and find only what they ask for. */
static void hit_and_miss(MPI_Comm comm, MPI_Comm other)
{
    for (int selector = 0; selector < SELECTORS; selector++) {
        for (int s = 0; s < SIZES; s++) {
            size_t n = sizes[s];
            unsigned char *buffer = guarded_new(n);
            doing("hit and miss", (long long)n);
            if (check_rank % 2 == 0) {
                fill(buffer, n, seed_of(check_rank, selector, n));
                await_token(peer, READY, comm);
                MPI(MPI_Send(buffer, (int)n, MPI_BYTE, peer, DATA, comm));
            } else {
                MPI_Status status;
                int flag = 0;
                expect_nothing(source_of(selector), tag_of(selector), comm);
                send_token(peer, READY, comm);
                if (s % 2)
                    MPI(MPI_Probe(source_of(selector), tag_of(selector), comm, &status));
                else
                    while (!flag)
                        MPI(MPI_Iprobe(source_of(selector), tag_of(selector), comm, &flag, &status));
                CHECK_STATUS(&status, peer, DATA, (int)n);
                MPI(MPI_Probe(source_of(selector ^ 3), tag_of(selector ^ 3), comm, &status));
                CHECK_STATUS(&status, peer, DATA, (int)n);
                MPI(MPI_Iprobe(peer, DATA, comm, &flag, &status));
                CHECK_EQ(flag, 1);
                CHECK_STATUS(&status, peer, DATA, (int)n);
                expect_nothing(source_of(selector), OTHER, comm);
                expect_nothing(check_rank, tag_of(selector), comm);
                expect_nothing(source_of(selector), tag_of(selector), other);
                MPI(MPI_Recv(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &status));
                CHECK_STATUS(&status, peer, DATA, (int)n);
                VERIFY(buffer, n, seed_of(peer, selector, n));
                expect_nothing(source_of(selector), tag_of(selector), comm);
            }
            GUARDED_FREE(buffer, n);
        }
    }
    MPI(MPI_Barrier(comm));
}

static MPI_Message matched(int selector, bool blocking, MPI_Comm comm, MPI_Status *status)
{
    MPI_Message message = MPI_MESSAGE_NULL;
    int flag = 0;
    if (blocking)
        MPI(MPI_Mprobe(source_of(selector), tag_of(selector), comm, &message, status));
    else
        while (!flag)
            MPI(MPI_Improbe(source_of(selector), tag_of(selector), comm, &flag, &message, status));
    CHECK(message != MPI_MESSAGE_NULL);
    CHECK(message != MPI_MESSAGE_NO_PROC);
    return message;
}

/* Receives by Mrecv or Imrecv; gives the error code. */
static int take(bool immediate, void *buffer, int count, MPI_Datatype type, MPI_Message *message,
                MPI_Status *status)
{
    int code;
    if (immediate) {
        MPI_Request request;
        MPI(MPI_Imrecv(buffer, count, type, message, &request));
        CHECK(*message == MPI_MESSAGE_NULL);
        code = MPI_Wait(&request, status);
        CHECK(request == MPI_REQUEST_NULL);
    } else {
        code = MPI_Mrecv(buffer, count, type, message, status);
        CHECK(*message == MPI_MESSAGE_NULL);
    }
    return code;
}

enum shape { EXACT, LONGER, GAPPED, SHAPES };

static void matched_receives(MPI_Comm comm)
{
    MPI_Datatype gapped;
    MPI(MPI_Type_create_resized(MPI_BYTE, 0, 3, &gapped));
    MPI(MPI_Type_commit(&gapped));
    for (int turn = 0; turn < SELECTORS * 4 * SHAPES; turn++) {
        int selector = turn % 4, shape = turn / 16;
        bool blocking = turn & 4, immediate = turn & 8;
        for (int s = 0; s < SIZES; s++) {
            size_t n = sizes[s], room = shape == EXACT ? n : shape == LONGER ? n + 9 : 3 * n;
            unsigned char *buffer = guarded_new(room);
            doing("matched receive", (long long)n);
            if ((check_rank + turn) % 2 == 0) {
                fill(buffer, n, seed_of(check_rank, turn, n));
                if (turn % 3)
                    MPI(MPI_Send(buffer, (int)n, MPI_BYTE, peer, DATA, comm));
                else
                    MPI(MPI_Ssend(buffer, (int)n, MPI_BYTE, peer, DATA, comm));
            } else {
                MPI_Status status;
                MPI_Message message = matched(selector, blocking, comm, &status);
                CHECK_STATUS(&status, peer, DATA, (int)n);
                MPI(take(immediate, buffer, (int)(shape == LONGER ? room : n),
                         shape == GAPPED ? gapped : MPI_BYTE, &message, &status));
                CHECK_STATUS(&status, peer, DATA, (int)n);
                if (shape == GAPPED) {
                    bool good = true;
                    for (size_t i = 0; i < n; i++) {
                        good = good && buffer[3 * i] == pattern(seed_of(peer, turn, n), i) &&
                               buffer[3 * i + 1] == 0xA5 && buffer[3 * i + 2] == 0xA5;
                    }
                    CHECK(good);
                } else {
                    VERIFY(buffer, n, seed_of(peer, turn, n));
                    UNTOUCHED(buffer + n, buffer + room);
                }
            }
            GUARDED_FREE(buffer, room);
        }
    }
    MPI(MPI_Type_free(&gapped));
}

/* Too long for the buffer: an error, no byte too many, and the message is gone. */
static void truncated(MPI_Comm comm, size_t longest)
{
    for (int turn = 0; turn < 4 * SIZES; turn++) {
        size_t n = sizes[turn / 4], room = n / 2;
        if (n > longest)
            continue;
        unsigned char *buffer = guarded_new(n);
        if (n == 0)
            n = 1;
        doing("truncated matched receive", (long long)n);
        if ((check_rank + turn) % 2 == 0) {
            unsigned char *whole = guarded_new(n);
            fill(whole, n, seed_of(check_rank, turn, n));
            MPI(MPI_Send(whole, (int)n, MPI_BYTE, peer, DATA, comm));
            MPI(MPI_Send(NULL, 0, MPI_BYTE, peer, OTHER, comm));
            GUARDED_FREE(whole, n);
        } else {
            MPI_Status status;
            MPI_Message message = matched(turn % 4, turn & 1, comm, &status);
            int class = -1;
            CHECK_STATUS(&status, peer, DATA, (int)n);
            MPI(MPI_Error_class(take(turn & 2, buffer, (int)room, MPI_BYTE, &message, &status),
                                &class));
            CHECK_EQ(class, MPI_ERR_TRUNCATE);
            CHECK_EQ(status.MPI_SOURCE, peer);
            CHECK_EQ(status.MPI_TAG, DATA);
            UNTOUCHED(buffer + room, buffer + sizes[turn / 4]);
            MPI(MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
            CHECK_STATUS(&status, peer, OTHER, 0);
        }
        GUARDED_FREE(buffer, sizes[turn / 4]);
    }
}

/* A matched message is out of matching: probes and receives get the ones behind it. */
static void out_of_matching(MPI_Comm comm)
{
    enum { MESSAGES = 12, LONGEST = 70000 };
    static const size_t lengths[MESSAGES] = { 8, 8, 300, 0, LONGEST, 8, LONGEST, 300, 5000, 0, 64, 129 };
    static unsigned char buffers[MESSAGES][LONGEST];
    MPI_Request requests[MESSAGES];
    for (int i = 0; i < MESSAGES; i++)
        fill(buffers[i], lengths[i], seed_of(check_rank, i, lengths[i]));
    doing("out of matching", 0);
    if (check_rank % 2 == 0) {
        for (int i = 0; i < MESSAGES; i++)
            MPI(MPI_Isend(buffers[i], (int)lengths[i], MPI_BYTE, peer, DATA, comm, &requests[i]));
        MPI(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
    } else {
        MPI_Message messages[MESSAGES];
        MPI_Status status;
        memset(buffers, 0, sizeof buffers);
        /* Every third message is received at once, the others are held and taken backwards. */
        for (int i = 0; i < MESSAGES; i++) {
            doing("out of matching, message", i);
            if (i % 3 == 2) {
                MPI(MPI_Probe(peer, DATA, comm, &status));
                CHECK_STATUS(&status, peer, DATA, (int)lengths[i]);
                MPI(MPI_Recv(buffers[i], LONGEST, MPI_BYTE, source_of(i), tag_of(i / 3), comm, &status));
            } else {
                messages[i] = matched(i, i % 2, comm, &status);
            }
            CHECK_STATUS(&status, peer, DATA, (int)lengths[i]);
        }
        for (int i = MESSAGES - 1; i >= 0; i--) {
            if (i % 3 == 2)
                continue;
            MPI(MPI_Imrecv(buffers[i], LONGEST, MPI_BYTE, &messages[i], &requests[i]));
            MPI(MPI_Wait(&requests[i], &status));
            CHECK_STATUS(&status, peer, DATA, (int)lengths[i]);
        }
        for (int i = 0; i < MESSAGES; i++)
            VERIFY(buffers[i], lengths[i], seed_of(peer, i, lengths[i]));
    }
    MPI(MPI_Barrier(comm));
}

/* A claimed message stays its claimant's, whatever is posted before it is received. The plain TCP provider of
 * libfabric 1.17 stores four messages of 128 bytes, reads the header of the fifth, and may store that later. */
static void beside_receives(MPI_Comm comm)
{
    enum { MESSAGES = 8, ROUNDS = 20, UNSENT = 99, LONGEST = 100 };
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char buffers[MESSAGES][LONGEST];
        int late = 4 + round % (MESSAGES - 4);
        size_t n = (size_t)(round * 37 % LONGEST);
        doing("a claim beside receives, round", round);
        MPI(MPI_Barrier(comm));
        if (check_rank % 2 == 0) {
            for (int i = 0; i < MESSAGES; i++) {
                fill(buffers[i], n, seed_of(check_rank, i, n));
                MPI(MPI_Send(buffers[i], (int)n, MPI_BYTE, peer, i, comm));
            }
        } else {
            MPI_Request unsent, request;
            MPI_Message message;
            MPI_Status status;
            unsigned char none;
            int flag = 0;
            /* Time for them to come; a right one passes with or without it. */
            usleep(2000);
            MPI(MPI_Recv(buffers[0], LONGEST, MPI_BYTE, peer, 0, comm, &status));
            while (!flag)
                MPI(MPI_Improbe(round & 1 ? MPI_ANY_SOURCE : peer, late, comm, &flag, &message, &status));
            CHECK_STATUS(&status, peer, late, (int)n);
            MPI(MPI_Irecv(&none, 1, MPI_BYTE, round & 2 ? MPI_ANY_SOURCE : peer, UNSENT, comm, &unsent));
            MPI(MPI_Imrecv(buffers[late], LONGEST, MPI_BYTE, &message, &request));
            for (int i = 1; i < MESSAGES; i++)
                if (i != late)
                    MPI(MPI_Recv(buffers[i], LONGEST, MPI_BYTE, peer, i, comm, &status));
            MPI(MPI_Wait(&request, &status));
            CHECK_STATUS(&status, peer, late, (int)n);
            for (int i = 0; i < MESSAGES; i++)
                VERIFY(buffers[i], n, seed_of(peer, i, n));
            MPI(MPI_Cancel(&unsent));
            MPI(MPI_Wait(&unsent, &status));
            MPI(MPI_Test_cancelled(&status, &flag));
            CHECK(flag);
        }
    }
    MPI(MPI_Barrier(comm));
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Synchronous sends complete when their matched receive is there, and not before a match. */
static void synchronous(size_t n, MPI_Comm comm)
{
    unsigned char *buffer = guarded_new(n);
    MPI_Request request;
    double matched_at, done;
    doing("Issend and Imrecv", (long long)n);
    if (check_rank % 2 == 0) {
        int flag = 0;
        fill(buffer, n, seed_of(check_rank, DATA, n));
        MPI(MPI_Issend(buffer, (int)n, MPI_BYTE, peer, DATA, comm, &request));
        for (int i = 0; i < 2000 && !flag; i++)
            MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        CHECK_EQ(flag, 0);
        send_token(peer, READY, comm);
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        doing("Ssend and Mrecv", (long long)n);
        MPI(MPI_Ssend(buffer, (int)n, MPI_BYTE, peer, DATA, comm));
        done = now();
        MPI(MPI_Recv(&matched_at, 1, MPI_DOUBLE, peer, RESULT, comm, MPI_STATUS_IGNORE));
        CHECK(done >= matched_at);
    } else {
        MPI_Message message;
        MPI_Status status;
        await_token(peer, READY, comm);
        message = matched(0, true, comm, &status);
        MPI(take(true, buffer, (int)n, MPI_BYTE, &message, &status));
        VERIFY(buffer, n, seed_of(peer, DATA, n));
        memset(buffer, 0, n);
        doing("Ssend and Mrecv", (long long)n);
        MPI(MPI_Probe(peer, DATA, comm, &status));
        /* Time for a wrong Ssend to return early; a right one passes with or without it. */
        usleep(20000);
        matched_at = now();
        message = matched(0, true, comm, &status);
        MPI(take(false, buffer, (int)n, MPI_BYTE, &message, &status));
        VERIFY(buffer, n, seed_of(peer, DATA, n));
        MPI(MPI_Send(&matched_at, 1, MPI_DOUBLE, peer, RESULT, comm));
    }
    GUARDED_FREE(buffer, n);
}

static void from_myself(MPI_Comm comm)
{
    for (int s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        unsigned char *out = guarded_new(n), *in = guarded_new(n);
        MPI_Request request;
        MPI_Message message;
        MPI_Status status;
        doing("matched receive from myself", (long long)n);
        fill(out, n, seed_of(check_rank, s, n));
        MPI(MPI_Isend(out, (int)n, MPI_BYTE, check_rank, OTHER, comm, &request));
        MPI(MPI_Mprobe(MPI_ANY_SOURCE, OTHER, comm, &message, &status));
        CHECK_STATUS(&status, check_rank, OTHER, (int)n);
        expect_nothing(check_rank, OTHER, comm);
        MPI(take(s % 2, in, (int)n, MPI_BYTE, &message, &status));
        CHECK_STATUS(&status, check_rank, OTHER, (int)n);
        VERIFY(in, n, seed_of(check_rank, s, n));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        GUARDED_FREE(out, n);
        GUARDED_FREE(in, n);
    }
    /* A faster peer's message of this tag would match the wildcards above. */
    MPI(MPI_Barrier(comm));
}

static void nobody(MPI_Comm comm)
{
    unsigned char byte = 9;
    MPI_Status status;
    int flag = 0;
    doing("MPI_PROC_NULL", 0);
    MPI(MPI_Probe(MPI_PROC_NULL, DATA, comm, &status));
    CHECK_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    MPI(MPI_Iprobe(MPI_PROC_NULL, DATA, comm, &flag, &status));
    CHECK_EQ(flag, 1);
    CHECK_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    for (int turn = 0; turn < 4; turn++) {
        MPI_Message message = MPI_MESSAGE_NULL;
        flag = 1;
        if (turn % 2)
            MPI(MPI_Mprobe(MPI_PROC_NULL, DATA, comm, &message, &status));
        else
            MPI(MPI_Improbe(MPI_PROC_NULL, DATA, comm, &flag, &message, &status));
        CHECK_EQ(flag, 1);
        CHECK(message == MPI_MESSAGE_NO_PROC);
        CHECK_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
        MPI(take(turn / 2, &byte, 1, MPI_BYTE, &message, &status));
        CHECK_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
        CHECK_EQ(byte, 9);
    }
}

/* Matched receives give back what they take: no growth after the first few thousand. */
static void memory(MPI_Comm comm)
{
    enum { WARM = 4000, MESSAGES = 20000, WINDOW = 50, GROWTH_KIB = 1024 };
    static unsigned char buffer[2000];
    long before = 0;
    for (int i = 0; i < WARM + MESSAGES; i++) {
        size_t n = (size_t)(i % 3) * 997;
        doing("memory, message", i);
        if (i == WARM)
            before = resident_kib();
        if (check_rank % 2 == 0) {
            fill(buffer, n, seed_of(check_rank, i % 100, n));
            MPI(MPI_Send(buffer, (int)n, MPI_BYTE, peer, DATA, comm));
            if (i % WINDOW == WINDOW - 1)
                await_token(peer, READY, comm);
        } else {
            MPI_Status status;
            MPI_Message message = matched(i % 4, i & 4, comm, &status);
            MPI(take(i & 8, buffer, (int)sizeof buffer, MPI_BYTE, &message, &status));
            CHECK_STATUS(&status, peer, DATA, (int)n);
            VERIFY(buffer, n, seed_of(peer, i % 100, n));
            if (i % WINDOW == WINDOW - 1)
                send_token(peer, READY, comm);
        }
    }
    long growth = resident_kib() - before;
    if (growth >= GROWTH_KIB)
        doing("memory, KiB grown", growth);
    CHECK(growth < GROWTH_KIB);
}

int main(int argc, char **argv)
{
    MPI_Comm comm, other;
    check_start(&argc, &argv, "probe", MPI_THREAD_SINGLE, 2);
    if (!CHECK(check_size % 2 == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    peer = check_rank ^ 1;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    nobody(comm);
    hit_and_miss(comm, other);
    matched_receives(comm);
    /* ob1 writes past the buffer of longer ones, whatever carries them. */
    truncated(comm, argc > 1 && strcmp(argv[1], "eager") == 0 ? 16 << 10 : (size_t)-1);
    from_myself(comm);
    for (int s = 0; s < SIZES; s++)
        synchronous(sizes[s], comm);
    out_of_matching(comm);
    beside_receives(comm);
    memory(comm);
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Comm_free(&other));
    return check_finish();
}
