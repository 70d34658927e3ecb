/* Persistent requests: all modes, of types whose data does not start at the buffer address,
 * started again and again one by one and together, mixed with ordinary sends and receives. */
#include "check.h"

enum { DATA = 10, READY = 11, MARGIN = 48 };

enum mode { SEND, BSEND, RSEND, SSEND, MODES };
enum kind { PLAIN, DISPLACED, DISPLACED_MANY, LOWER_BOUND, BELOW, IN_STRUCT, ABSOLUTE, GAPPED, KINDS };

static const char *const kind_names[KINDS] = {
    "plain", "displaced", "displaced, many", "lower bound", "below", "in a struct", "absolute", "gapped",
};

/* Multiples of eight. */
static const size_t sizes[] = { 0, 8, 64, 120, 128, 136, 256, 1000, 5000, 65536, 1 << 20 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static int peer;
static MPI_Comm comm;

/* A buffer and a datatype for `n` bytes of payload: byte i lies at start + i * stride. */
struct place {
    unsigned char *region, *start;
    void *address;
    size_t n, room, stride;
    int count;
    MPI_Datatype type;
};

static void resize(MPI_Datatype *type, MPI_Aint lower, MPI_Aint extent)
{
    MPI_Datatype old = *type;
    MPI(MPI_Type_create_resized(old, lower, extent, type));
    MPI(MPI_Type_free(&old));
}

static struct place place_new(enum kind kind, size_t n)
{
    struct place p = { .n = n, .room = 2 * MARGIN + (kind == GAPPED ? 3 * n : n), .stride = 1, .count = 1 };
    int length = (int)n, eight = 8;
    MPI_Aint at = 0;
    MPI_Datatype byte = MPI_BYTE;
    p.region = guarded_new(p.room);
    p.address = p.region + MARGIN;
    switch (kind) {
    case PLAIN:
        MPI(MPI_Type_dup(MPI_BYTE, &p.type));
        p.count = length;
        break;
    case DISPLACED:
        at = 16;
        MPI(MPI_Type_create_hindexed(1, &length, &at, MPI_BYTE, &p.type));
        break;
    case DISPLACED_MANY:
        at = 16;
        MPI(MPI_Type_create_hindexed(1, &eight, &at, MPI_BYTE, &p.type));
        p.count = length / 8;
        break;
    case LOWER_BOUND:
        MPI(MPI_Type_contiguous(length, MPI_BYTE, &p.type));
        resize(&p.type, -24, length + 24);
        break;
    case BELOW:
        at = -32;
        MPI(MPI_Type_create_hindexed(1, &length, &at, MPI_BYTE, &p.type));
        break;
    case IN_STRUCT:
        at = 40;
        MPI(MPI_Type_create_struct(1, &length, &at, &byte, &p.type));
        resize(&p.type, 8, length + 64);
        break;
    case ABSOLUTE:
        MPI(MPI_Get_address(p.region + MARGIN, &at));
        MPI(MPI_Type_create_hindexed(1, &length, &at, MPI_BYTE, &p.type));
        p.address = MPI_BOTTOM;
        at = 0;
        break;
    case GAPPED:
        MPI(MPI_Type_create_resized(MPI_BYTE, 0, 3, &p.type));
        p.count = length;
        p.stride = 3;
        break;
    case KINDS: abort();
    }
    p.start = p.region + MARGIN + at;
    MPI(MPI_Type_commit(&p.type));
    return p;
}

static void place_free(struct place *p)
{
    GUARDED_FREE(p->region, p->room);
    if (p->type != MPI_DATATYPE_NULL)
        MPI(MPI_Type_free(&p->type));
}

static void write_payload(struct place *p, unsigned seed)
{
    for (size_t i = 0; i < p->n; i++)
        p->start[i * p->stride] = pattern(seed, i);
}

/* Payload right, everything else untouched; then all is as before the receive. */
static void check_and_clear(struct place *p, unsigned seed)
{
    bool good = true;
    for (size_t i = 0; i < p->n; i++) {
        good = good && p->start[i * p->stride] == pattern(seed, i);
        p->start[i * p->stride] = 0xA5;
    }
    CHECK(good);
    UNTOUCHED(p->region, p->region + p->room);
}

static void send_init(enum mode mode, const struct place *p, int to, int tag, MPI_Request *request)
{
    switch (mode) {
    case SEND: MPI(MPI_Send_init(p->address, p->count, p->type, to, tag, comm, request)); break;
    case BSEND: MPI(MPI_Bsend_init(p->address, p->count, p->type, to, tag, comm, request)); break;
    case RSEND: MPI(MPI_Rsend_init(p->address, p->count, p->type, to, tag, comm, request)); break;
    case SSEND: MPI(MPI_Ssend_init(p->address, p->count, p->type, to, tag, comm, request)); break;
    case MODES: abort();
    }
}

/* A Bsend_init of Open MPI sends stale memory from its second start on, with ob1 above the
 * eager limit and with cm always (4.1 and 5.0): for each start it gets a new request. */
static void renew_bsend(const struct place *p, int tag, MPI_Request *request)
{
    MPI(MPI_Request_free(request));
    send_init(BSEND, p, peer, tag, request);
}

static void recv_init(const struct place *p, int source, int tag, MPI_Request *request)
{
    MPI(MPI_Recv_init(p->address, p->count, p->type, source, tag, comm, request));
}

/* Waiting for a request that was not started gives the empty status at once. */
static void check_inactive(MPI_Request *request)
{
    MPI_Status status;
    int flag = 0;
    MPI(MPI_Wait(request, &status));
    CHECK_STATUS(&status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    MPI(MPI_Test(request, &flag, &status));
    CHECK_EQ(flag, 1);
    CHECK_STATUS(&status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    CHECK(*request != MPI_REQUEST_NULL);
}

/* One pair of requests, started over and over; every second round the receive comes first. */
static void loop(enum mode mode, enum kind from, enum kind to, size_t n, bool sender)
{
    int rounds = n > 100000 ? 3 : 12;
    struct place p = place_new(sender ? from : to, n);
    MPI_Request request;
    MPI_Status status;
    doing(kind_names[sender ? from : to], (long long)n);
    if (sender)
        send_init(mode, &p, peer, DATA, &request);
    else
        recv_init(&p, n % 3 ? MPI_ANY_SOURCE : peer, DATA, &request);
    check_inactive(&request);
    if (mode != BSEND)
        MPI(MPI_Type_free(&p.type));
    for (int round = 0; round < rounds; round++) {
        bool receive_first = round % 2 || mode == RSEND;
        if (sender) {
            if (mode == BSEND && round > 0)
                renew_bsend(&p, DATA, &request);
            write_payload(&p, seed_of(check_rank, round, n));
            if (receive_first)
                await_token(peer, READY, comm);
            MPI(MPI_Start(&request));
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
            check_and_clear(&p, seed_of(check_rank, round, n));
        } else {
            if (!receive_first)
                MPI(MPI_Probe(peer, DATA, comm, &status));
            MPI(MPI_Start(&request));
            if (receive_first)
                send_token(peer, READY, comm);
            MPI(MPI_Wait(&request, &status));
            CHECK_STATUS(&status, peer, DATA, (int)n);
            check_and_clear(&p, seed_of(peer, round, n));
        }
        check_inactive(&request);
    }
    MPI(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    place_free(&p);
}

static void all_loops(void)
{
    for (int s = 0; s < SIZES; s++) {
        for (int mode = 0; mode < MODES; mode++) {
            for (int from = 0; from < KINDS; from++) {
                int to = (from + mode + s) % KINDS, turn = from + mode;
                loop((enum mode)mode, (enum kind)from, (enum kind)from, sizes[s],
                     (check_rank + turn) % 2 == 0);
                loop((enum mode)mode, (enum kind)from, (enum kind)to, sizes[s],
                     (check_rank + turn) % 2 == 1);
            }
        }
    }
}

/* Many at once in both directions, tags crossed, completed in several ways. */
static void together(size_t n, int rounds)
{
    enum { PAIRS = 12 };
    struct place out[PAIRS], in[PAIRS];
    MPI_Request requests[2 * PAIRS];
    MPI_Status statuses[2 * PAIRS];
    int indices[2 * PAIRS];
    doing("Startall", (long long)n);
    for (int i = 0; i < PAIRS; i++) {
        enum mode mode = i % 3 == 0 ? SEND : i % 3 == 1 ? SSEND : BSEND;
        out[i] = place_new((enum kind)((i + 1) % KINDS), n);
        in[i] = place_new((enum kind)(i % KINDS), n);
        send_init(mode, &out[i], peer, 100 + i, &requests[2 * (PAIRS - 1 - i)]);
        recv_init(&in[i], i % 4 ? peer : MPI_ANY_SOURCE, 100 + i, &requests[2 * i + 1]);
    }
    for (int round = 0; round < rounds; round++) {
        int left = 2 * PAIRS, done = 0, flag = 0;
        for (int i = 0; i < PAIRS; i++) {
            if (round > 0 && i % 3 == 2)
                renew_bsend(&out[i], 100 + i, &requests[2 * (PAIRS - 1 - i)]);
            write_payload(&out[i], seed_of(check_rank, round + i, n));
        }
        MPI(MPI_Startall(2 * PAIRS, requests));
        switch (round % 4) {
        case 0: MPI(MPI_Waitall(2 * PAIRS, requests, statuses)); break;
        case 1:
            while (!flag)
                MPI(MPI_Testall(2 * PAIRS, requests, &flag, statuses));
            break;
        case 2:
            for (; left > 0; left--) {
                int index = -1;
                MPI_Status status;
                MPI(MPI_Waitany(2 * PAIRS, requests, &index, &status));
                if (CHECK(index >= 0 && index < 2 * PAIRS))
                    statuses[index] = status;
            }
            break;
        case 3:
            while (left > 0) {
                MPI_Status some[2 * PAIRS];
                MPI(MPI_Waitsome(2 * PAIRS, requests, &done, indices, some));
                if (!CHECK(done > 0 && done <= left))
                    break;
                for (int d = 0; d < done; d++)
                    statuses[indices[d]] = some[d];
                left -= done;
            }
            break;
        }
        for (int i = 0; i < PAIRS; i++) {
            CHECK_STATUS(&statuses[2 * i + 1], peer, 100 + i, (int)n);
            check_and_clear(&in[i], seed_of(peer, round + i, n));
            check_and_clear(&out[i], seed_of(check_rank, round + i, n));
        }
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        MPI(MPI_Request_free(&requests[i]));
    for (int i = 0; i < PAIRS; i++) {
        place_free(&out[i]);
        place_free(&in[i]);
    }
}

/* Persistent on one side only. */
static void mixed(size_t n)
{
    for (int turn = 0; turn < 4 * KINDS; turn++) {
        struct place p = place_new((enum kind)(turn / 4), n);
        MPI_Request request;
        MPI_Status status;
        bool persistent = (turn & 1) == (check_rank & 1), sender = (turn & 2) == 2 * (check_rank & 1);
        doing("persistent on one side", (long long)n);
        for (int round = 0; round < 4; round++) {
            if (sender) {
                write_payload(&p, seed_of(check_rank, round, n));
                if (persistent && round == 0)
                    send_init(round + turn % 8 < 4 ? SEND : SSEND, &p, peer, DATA, &request);
                if (persistent)
                    MPI(MPI_Start(&request));
                else
                    MPI(MPI_Isend(p.address, p.count, p.type, peer, DATA, comm, &request));
                MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
                check_and_clear(&p, seed_of(check_rank, round, n));
            } else {
                if (persistent && round == 0)
                    recv_init(&p, peer, DATA, &request);
                if (persistent)
                    MPI(MPI_Start(&request));
                else
                    MPI(MPI_Irecv(p.address, p.count, p.type, peer, DATA, comm, &request));
                MPI(MPI_Wait(&request, &status));
                CHECK_STATUS(&status, peer, DATA, (int)n);
                check_and_clear(&p, seed_of(peer, round, n));
            }
        }
        if (persistent)
            MPI(MPI_Request_free(&request));
        CHECK(request == MPI_REQUEST_NULL);
        place_free(&p);
    }
}

static void to_myself_and_nobody(size_t n)
{
    struct place out = place_new(DISPLACED, n), in = place_new(IN_STRUCT, n);
    MPI_Request requests[4];
    MPI_Status statuses[4];
    doing("persistent to myself and to nobody", (long long)n);
    recv_init(&in, check_rank, DATA, &requests[0]);
    send_init(SSEND, &out, check_rank, DATA, &requests[1]);
    recv_init(&in, MPI_PROC_NULL, DATA, &requests[2]);
    send_init(SEND, &out, MPI_PROC_NULL, DATA, &requests[3]);
    for (int round = 0; round < 10; round++) {
        write_payload(&out, seed_of(check_rank, round, n));
        MPI(MPI_Startall(4, requests));
        MPI(MPI_Waitall(4, requests, statuses));
        CHECK_STATUS(&statuses[0], check_rank, DATA, (int)n);
        CHECK_STATUS(&statuses[2], MPI_PROC_NULL, MPI_ANY_TAG, 0);
        check_and_clear(&in, seed_of(check_rank, round, n));
        check_and_clear(&out, seed_of(check_rank, round, n));
    }
    for (int i = 0; i < 4; i++)
        MPI(MPI_Request_free(&requests[i]));
    place_free(&out);
    place_free(&in);
}

/* A start costs no memory that its completion does not give back. The limit leaves room for
 * the 96 bytes that ofi_rxm of libfabric 1.17 loses itself with every message. */
static void memory(void)
{
    enum { WARM = 2000, STARTS = 20000, GROWTH_KIB = 3072, N = 1000 };
    struct place out = place_new(GAPPED, N), in = place_new(DISPLACED, N);
    MPI_Request pair[2];
    long before = 0, growth;
    doing("memory", 0);
    send_init(SEND, &out, peer, DATA, &pair[0]);
    recv_init(&in, peer, DATA, &pair[1]);
    for (int i = 0; i < WARM + STARTS; i++) {
        if (i == WARM)
            before = resident_kib();
        MPI(MPI_Startall(2, pair));
        MPI(MPI_Waitall(2, pair, MPI_STATUSES_IGNORE));
    }
    growth = resident_kib() - before;
    if (growth >= GROWTH_KIB)
        doing("memory, KiB grown", growth);
    CHECK(growth < GROWTH_KIB);
    MPI(MPI_Request_free(&pair[0]));
    MPI(MPI_Request_free(&pair[1]));
    free(out.region - CHECK_GUARD);
    free(in.region - CHECK_GUARD);
    MPI(MPI_Type_free(&out.type));
    MPI(MPI_Type_free(&in.type));
}

int main(int argc, char **argv)
{
    int space = 16 * ((1 << 20) + MPI_BSEND_OVERHEAD);
    void *bsend_space = malloc((size_t)space);
    check_start(&argc, &argv, "persist", MPI_THREAD_SINGLE, 2);
    if (!CHECK(check_size % 2 == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    peer = check_rank ^ 1;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Buffer_attach(bsend_space, space));
    all_loops();
    for (int s = 0; s < SIZES; s++) {
        together(sizes[s], sizes[s] > 100000 ? 4 : 20);
        mixed(sizes[s]);
        to_myself_and_nobody(sizes[s]);
    }
    memory();
    MPI(MPI_Buffer_detach(&bsend_space, &space));
    free(bsend_space);
    MPI(MPI_Comm_free(&comm));
    return check_finish();
}
