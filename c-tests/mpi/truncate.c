/* Messages longer than their receive buffer, with MPI_ERRORS_RETURN: the error class, the
 * envelope in the status, nothing written behind the buffer, no memory lost, and messages
 * after them as if nothing had happened. */
#include "check.h"

enum { READY = 11, NEXT = 12, FIRST_TAG = 4000 };

enum call { RECV, IRECV_WAIT, IRECV_TEST, IRECV_WAITALL, RECV_INIT, MRECV, IMRECV, CALLS };
enum shape { CONTIGUOUS, GAPPED_RECEIVE, GAPPED_SEND, SHAPES };

static const char *const call_names[] = {
    "Recv", "Irecv and Wait", "Irecv and Test", "Irecv and Waitall", "Recv_init", "Mrecv", "Imrecv",
};

/* Lengths of message and buffer. */
static const struct { size_t message, room; } lengths[] = {
    { 1, 0 }, { 8, 0 }, { 8, 4 }, { 9, 8 }, { 200, 199 }, { 200, 8 }, { 129, 128 },
    { 100 << 10, (100 << 10) - 1 }, { 100 << 10, 1000 }, { 100 << 10, 0 },
    { 4 << 20, (4 << 20) - 1 }, { 4 << 20, 100 << 10 },
};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

/* Longest message that is sent. ob1 writes past the buffer of longer ones, whatever carries them. */
static size_t longest = (size_t)-1;

static int peer;
static MPI_Comm comm;
static MPI_Datatype gapped;

static int class_of(int code)
{
    int class = -1;
    MPI(MPI_Error_class(code, &class));
    return class;
}

static int finish(enum call call, MPI_Request *request, MPI_Status *status)
{
    int code = MPI_SUCCESS, flag = 0;
    if (call == IRECV_WAITALL) {
        status->MPI_ERROR = MPI_SUCCESS;
        code = MPI_Waitall(1, request, status);
        if (code != MPI_SUCCESS) {
            CHECK_EQ(class_of(code), MPI_ERR_IN_STATUS);
            code = status->MPI_ERROR;
        }
    } else if (call == IRECV_TEST) {
        while (!flag && code == MPI_SUCCESS)
            code = MPI_Test(request, &flag, status);
    } else {
        code = MPI_Wait(request, status);
    }
    return code;
}

/* `late` waits until the message has come; otherwise the receive is posted first where the
 * call allows it. The sender waits for the token. */
static int receive(enum call call, void *buffer, int count, MPI_Datatype type, int source, int tag,
                   bool late, MPI_Status *status)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message;
    int code;
    if (late || call == RECV || call >= MRECV)
        send_token(peer, READY, comm);
    if (call >= MRECV)
        MPI(MPI_Mprobe(source, tag, comm, &message, status));
    else if (late)
        MPI(MPI_Probe(source, tag, comm, status));
    if (call == RECV)
        return MPI_Recv(buffer, count, type, source, tag, comm, status);
    if (call == MRECV)
        return MPI_Mrecv(buffer, count, type, &message, status);
    if (call == IMRECV) {
        MPI(MPI_Imrecv(buffer, count, type, &message, &request));
    } else if (call == RECV_INIT) {
        MPI(MPI_Recv_init(buffer, count, type, source, tag, comm, &request));
        MPI(MPI_Start(&request));
    } else {
        MPI(MPI_Irecv(buffer, count, type, source, tag, comm, &request));
    }
    if (!late && call < MRECV)
        send_token(peer, READY, comm);
    code = finish(call, &request, status);
    /* Open MPI frees even a persistent request that failed. */
    if (call == RECV_INIT && request != MPI_REQUEST_NULL)
        MPI(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    return code;
}

/* The byte behind each of `room` elements three bytes apart, and all behind the last. */
static void gaps_untouched(const unsigned char *buffer, size_t room, size_t region)
{
    bool good = true;
    for (size_t i = 0; i < room && good; i++)
        good = buffer[3 * i + 1] == 0xA5 && buffer[3 * i + 2] == 0xA5;
    CHECK(good);
    UNTOUCHED(buffer + 3 * room, buffer + region);
}

static void one_message(enum call call, int selector, enum shape shape, int which, bool late,
                        int turn)
{
    size_t n = lengths[which].message, room = lengths[which].room;
    size_t region = shape == CONTIGUOUS ? n : 3 * n;
    int tag = FIRST_TAG + turn % 1000;
    unsigned char *buffer = guarded_new(region);
    doing(call_names[call], (long long)n);
    if ((check_rank + turn) % 2 == 0) {
        MPI_Datatype type = shape == GAPPED_SEND ? gapped : MPI_BYTE;
        memset(buffer, 0x3C, region);
        await_token(peer, READY, comm);
        if (turn % 3 == 0)
            MPI(MPI_Ssend(buffer, (int)n, type, peer, tag, comm));
        else
            MPI(MPI_Send(buffer, (int)n, type, peer, tag, comm));
        fill(buffer, n, seed_of(check_rank, turn, n));
        MPI(MPI_Send(buffer, (int)n, MPI_BYTE, peer, tag, comm));
    } else {
        MPI_Status status;
        int code = receive(call, buffer, (int)room, shape == GAPPED_RECEIVE ? gapped : MPI_BYTE,
                           selector & 1 ? MPI_ANY_SOURCE : peer,
                           selector & 2 ? MPI_ANY_TAG : tag, late, &status);
        CHECK_EQ(class_of(code), MPI_ERR_TRUNCATE);
        CHECK_EQ(status.MPI_SOURCE, peer);
        CHECK_EQ(status.MPI_TAG, tag);
        if (shape == GAPPED_RECEIVE)
            gaps_untouched(buffer, room, region);
        else
            UNTOUCHED(buffer + room, buffer + region);
        MPI(MPI_Recv(buffer, (int)n, MPI_BYTE, peer, tag, comm, &status));
        CHECK_STATUS(&status, peer, tag, (int)n);
        VERIFY(buffer, n, seed_of(peer, turn, n));
    }
    GUARDED_FREE(buffer, region);
}

static void all_calls(void)
{
    int turn = 0;
    for (int which = 0; which < LENGTHS; which++) {
        /* The longest take their wildcards in turn. */
        if (lengths[which].message > longest)
            continue;
        int selectors = lengths[which].message > (1 << 20) ? 1 : 4;
        for (int shape = 0; shape < SHAPES; shape++) {
            for (int call = 0; call < CALLS; call++) {
                for (int selector = 0; selector < selectors; selector++) {
                    for (int late = 0; late < 2; late++, turn++) {
                        one_message((enum call)call, selectors == 1 ? call % 4 : selector,
                                    (enum shape)shape, which, late, turn);
                    }
                }
            }
        }
    }
    MPI(MPI_Barrier(comm));
}

/* One truncated message among good ones completed together. */
static void among_others(size_t n)
{
    enum { MESSAGES = 8, BAD = 3 };
    unsigned char *buffers = guarded_new(MESSAGES * n);
    MPI_Request requests[MESSAGES];
    MPI_Status statuses[MESSAGES];
    doing("truncated among others", (long long)n);
    if (check_rank % 2 == 0) {
        await_token(peer, READY, comm);
        for (int i = 0; i < MESSAGES; i++) {
            fill(buffers + (size_t)i * n, n, seed_of(check_rank, i, n));
            MPI(MPI_Send(buffers + (size_t)i * n, (int)n, MPI_BYTE, peer, FIRST_TAG + i, comm));
        }
    } else {
        int code;
        for (int i = 0; i < MESSAGES; i++) {
            MPI(MPI_Irecv(buffers + (size_t)i * n, (int)(i == BAD ? n / 2 : n), MPI_BYTE, peer,
                          FIRST_TAG + i, comm, &requests[i]));
            statuses[i].MPI_ERROR = MPI_SUCCESS;
        }
        send_token(peer, READY, comm);
        code = MPI_Waitall(MESSAGES, requests, statuses);
        CHECK_EQ(class_of(code), MPI_ERR_IN_STATUS);
        for (int i = 0; i < MESSAGES; i++) {
            /* Waitall may return at the failure and leave others for later. */
            if (class_of(statuses[i].MPI_ERROR) == MPI_ERR_PENDING)
                statuses[i].MPI_ERROR = MPI_Wait(&requests[i], &statuses[i]);
            CHECK_EQ(class_of(statuses[i].MPI_ERROR), i == BAD ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
            CHECK_EQ(statuses[i].MPI_SOURCE, peer);
            CHECK_EQ(statuses[i].MPI_TAG, FIRST_TAG + i);
            if (i == BAD)
                UNTOUCHED(buffers + BAD * n + n / 2, buffers + (BAD + 1) * n);
            else
                VERIFY(buffers + (size_t)i * n, n, seed_of(peer, i, n));
        }
    }
    GUARDED_FREE(buffers, MESSAGES * n);
}

/* A persistent receive starts again after one that was truncated. Open MPI frees a persistent
 * request that failed; then another takes its place. */
static void restarted(size_t n)
{
    unsigned char *buffer = guarded_new(n + 1);
    doing("persistent receive after truncation", (long long)n);
    if (check_rank % 2 == 0) {
        fill(buffer, n + 1, seed_of(check_rank, 1, n));
        for (int i = 0; i < 20; i++) {
            await_token(peer, READY, comm);
            MPI(MPI_Send(buffer, (int)n + i % 2, MPI_BYTE, peer, NEXT, comm));
        }
    } else {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Status status;
        for (int i = 0; i < 20; i++) {
            int code;
            memset(buffer, 0, n);
            if (request == MPI_REQUEST_NULL) {
                MPI(MPI_Recv_init(buffer, (int)n, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm,
                                  &request));
            }
            MPI(MPI_Start(&request));
            send_token(peer, READY, comm);
            code = MPI_Wait(&request, &status);
            CHECK_EQ(class_of(code), i % 2 ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
            CHECK_EQ(status.MPI_SOURCE, peer);
            CHECK_EQ(status.MPI_TAG, NEXT);
            if (i % 2 == 0) {
                CHECK_STATUS(&status, peer, NEXT, (int)n);
                VERIFY(buffer, n, seed_of(peer, 1, n));
            }
            UNTOUCHED(buffer + n, buffer + n + 1);
        }
        if (request != MPI_REQUEST_NULL)
            MPI(MPI_Request_free(&request));
    }
    GUARDED_FREE(buffer, n + 1);
}

/* Non-contiguous receives need memory of the library's own, which a failure must free too. */
static void memory(void)
{
    enum { WARM = 50, ROUNDS = 500, LENGTH = 64 << 10, GROWTH_KIB = 4096 };
    unsigned char *buffer = guarded_new(3 * LENGTH);
    long before = 0, growth;
    memset(buffer, 0xA5, 3 * LENGTH);
    for (int i = 0; i < WARM + ROUNDS; i++) {
        doing("memory, message", i);
        if (i == WARM)
            before = resident_kib();
        if (check_rank % 2 == 0) {
            await_token(peer, READY, comm);
            MPI(MPI_Send(buffer, LENGTH, MPI_BYTE, peer, NEXT, comm));
        } else {
            MPI_Status status;
            int code = receive((enum call)(i % CALLS), buffer, LENGTH - 1 - i, gapped, peer, NEXT,
                               i % 2, &status);
            CHECK_EQ(class_of(code), MPI_ERR_TRUNCATE);
        }
    }
    growth = resident_kib() - before;
    if (growth >= GROWTH_KIB)
        doing("memory, KiB grown", growth);
    CHECK(growth < GROWTH_KIB);
    GUARDED_FREE(buffer, 3 * LENGTH);
}

static void life_goes_on(void)
{
    int sum = 0, one = 1, got = -1;
    MPI_Status status;
    doing("after truncations", 0);
    MPI(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK_EQ(sum, check_size);
    MPI(MPI_Sendrecv(&check_rank, 1, MPI_INT, peer, NEXT, &got, 1, MPI_INT, MPI_ANY_SOURCE,
                     MPI_ANY_TAG, comm, &status));
    CHECK_STATUS(&status, peer, NEXT, sizeof got);
    CHECK_EQ(got, peer);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 8, 200, 100 << 10, 4 << 20 };
    check_start(&argc, &argv, "truncate", MPI_THREAD_SINGLE, 2);
    if (!CHECK(check_size % 2 == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    peer = check_rank ^ 1;
    if (argc > 1 && strcmp(argv[1], "eager") == 0)
        longest = 16 << 10;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    MPI(MPI_Type_create_resized(MPI_BYTE, 0, 3, &gapped));
    MPI(MPI_Type_commit(&gapped));
    all_calls();
    for (int s = 0; s < 4 && sizes[s] <= longest; s++) {
        among_others(sizes[s]);
        restarted(sizes[s]);
    }
    if (longest >= 64 << 10)
        memory();
    life_goes_on();
    MPI(MPI_Type_free(&gapped));
    MPI(MPI_Comm_free(&comm));
    return check_finish();
}
