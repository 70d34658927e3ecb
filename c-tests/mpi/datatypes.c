/* Derived datatypes: every layout sent by every mode and received by every call, into the
 * same layout and into others of the same signature. Gaps and surroundings must keep their
 * content. */
#include "check.h"

enum { DATA = 10 };

enum send_mode { SEND, ISEND, SSEND, ISSEND, SEND_INIT, BSEND, SEND_MODES };
enum recv_mode { RECV, IRECV, RECV_INIT, MRECV, IMRECV, RECV_MODES };

static const char *const send_names[] = { "Send", "Isend", "Ssend", "Issend", "Send_init", "Bsend" };
static const char *const recv_names[] = { "Recv", "Irecv", "Recv_init", "Mrecv", "Imrecv" };

static int peer;

/* A datatype with a count, and where its bytes lie: worked out here, not asked of MPI. */
struct layout {
    MPI_Datatype type;
    int count, elements;
    size_t bytes;
    /* The region reaches from `below` bytes before the buffer address to its last byte. */
    size_t below, region;
    struct segment { ptrdiff_t offset; size_t length; } *segments;
    size_t segment_count, segment_room;
};

static void add(struct layout *l, ptrdiff_t offset, size_t length)
{
    if (l->segment_count == l->segment_room) {
        l->segment_room = l->segment_room ? 2 * l->segment_room : 16;
        l->segments = realloc(l->segments, l->segment_room * sizeof *l->segments);
        if (l->segments == NULL)
            abort();
    }
    l->segments[l->segment_count++] = (struct segment){ offset, length };
    l->bytes += length;
}

/* Builders of a signature of `n` ints; `n` is even. */

static void basic(struct layout *l, int n)
{
    MPI(MPI_Type_dup(MPI_INT, &l->type));
    l->count = n;
    add(l, 0, 4 * (size_t)n);
}

static void pairs(struct layout *l, int n)
{
    MPI(MPI_Type_contiguous(2, MPI_INT, &l->type));
    l->count = n / 2;
    add(l, 0, 4 * (size_t)n);
}

static void vector(struct layout *l, int n)
{
    MPI(MPI_Type_vector(n, 1, 3, MPI_INT, &l->type));
    for (int i = 0; i < n; i++)
        add(l, 12 * i, 4);
}

static void blocks(struct layout *l, int n)
{
    MPI(MPI_Type_vector(n / 2, 2, 5, MPI_INT, &l->type));
    for (int i = 0; i < n / 2; i++)
        add(l, 20 * i, 8);
}

static void stretched(struct layout *l, int n)
{
    MPI(MPI_Type_create_resized(MPI_INT, 0, 12, &l->type));
    l->count = n;
    for (int i = 0; i < n; i++)
        add(l, 12 * i, 4);
}

static void displaced(struct layout *l, int n)
{
    MPI_Aint at = 16;
    MPI(MPI_Type_create_hindexed(1, &n, &at, MPI_INT, &l->type));
    add(l, 16, 4 * (size_t)n);
}

static void displaced_pairs(struct layout *l, int n)
{
    MPI_Aint at = 16;
    int two = 2;
    MPI(MPI_Type_create_hindexed(1, &two, &at, MPI_INT, &l->type));
    l->count = n / 2;
    add(l, 16, 4 * (size_t)n);
}

static void before_the_buffer(struct layout *l, int n)
{
    MPI_Aint at = -16;
    MPI(MPI_Type_create_hindexed(1, &n, &at, MPI_INT, &l->type));
    add(l, -16, 4 * (size_t)n);
}

static void resized_negative(struct layout *l, int n)
{
    MPI_Datatype pair;
    MPI(MPI_Type_contiguous(2, MPI_INT, &pair));
    MPI(MPI_Type_create_resized(pair, -8, 20, &l->type));
    MPI(MPI_Type_free(&pair));
    l->count = n / 2;
    for (int i = 0; i < n / 2; i++)
        add(l, 20 * i, 8);
}

static void resized_displaced(struct layout *l, int n)
{
    MPI_Datatype one;
    MPI_Aint at = 16;
    int length = 1;
    MPI(MPI_Type_create_hindexed(1, &length, &at, MPI_INT, &one));
    MPI(MPI_Type_create_resized(one, 8, 12, &l->type));
    MPI(MPI_Type_free(&one));
    l->count = n;
    for (int i = 0; i < n; i++)
        add(l, 16 + 12 * i, 4);
}

/* Blocks of 1, 2 and 3 ints, laid out from the end of the buffer to its start. */
static void descending(struct layout *l, int n)
{
    int *lengths = malloc((size_t)n * sizeof *lengths);
    int *places = malloc((size_t)n * sizeof *places);
    int used = 0, at = 2 * n;
    for (int left = n; left > 0; used++) {
        lengths[used] = left < used % 3 + 1 ? left : used % 3 + 1;
        left -= lengths[used];
        at -= lengths[used] + 1;
        if (at < 0)
            abort();
        places[used] = at;
        add(l, 4 * (ptrdiff_t)at, 4 * (size_t)lengths[used]);
    }
    MPI(MPI_Type_indexed(used, lengths, places, MPI_INT, &l->type));
    free(lengths);
    free(places);
}

static void nested(struct layout *l, int n)
{
    MPI_Datatype split, wide, rows;
    MPI_Aint at = 4;
    int places[2] = { 0, 2 }, one = 1;
    MPI(MPI_Type_create_indexed_block(2, 1, places, MPI_INT, &split));
    MPI(MPI_Type_create_resized(split, 0, 20, &wide));
    MPI(MPI_Type_create_hvector(n / 2, 1, 24, wide, &rows));
    MPI(MPI_Type_create_struct(1, &one, &at, &rows, &l->type));
    MPI(MPI_Type_free(&split));
    MPI(MPI_Type_free(&wide));
    MPI(MPI_Type_free(&rows));
    for (int i = 0; i < n / 2; i++) {
        add(l, 4 + 24 * i, 4);
        add(l, 12 + 24 * i, 4);
    }
}

/* Builders of records of an int, a double and two shorts, 16 bytes of payload each. */

static void records(struct layout *l, int n, MPI_Aint a, MPI_Aint b, MPI_Aint c, int extent)
{
    MPI_Datatype plain, parts[3] = { MPI_INT, MPI_DOUBLE, MPI_SHORT };
    MPI_Aint at[3] = { a, b, c };
    int lengths[3] = { 1, 1, 2 };
    MPI(MPI_Type_create_struct(3, lengths, at, parts, &plain));
    MPI(MPI_Type_create_resized(plain, 0, extent, &l->type));
    MPI(MPI_Type_free(&plain));
    l->count = n / 4;
    l->elements = n;
    for (int i = 0; i < n / 4; i++) {
        add(l, extent * i + a, 4);
        add(l, extent * i + b, 8);
        add(l, extent * i + c, 4);
    }
}

static void natural(struct layout *l, int n)
{
    records(l, n, 0, 8, 16, 24);
}

static void reordered(struct layout *l, int n)
{
    records(l, n, 24, 0, 12, 32);
}

static void packed(struct layout *l, int n)
{
    records(l, n, 0, 4, 12, 16);
}

static void one_of_records(struct layout *l, int n)
{
    MPI_Datatype many;
    records(l, n, 8, 16, 0, 24);
    MPI(MPI_Type_contiguous(l->count, l->type, &many));
    MPI(MPI_Type_free(&l->type));
    l->type = many;
    l->count = 1;
}

struct kind { const char *name; void (*build)(struct layout *, int); };

static const struct kind of_ints[] = {
    { "basic", basic }, { "vector", vector }, { "displaced", displaced },
    { "descending", descending }, { "pairs", pairs }, { "nested", nested },
    { "before_the_buffer", before_the_buffer }, { "stretched", stretched },
    { "displaced_pairs", displaced_pairs }, { "blocks", blocks },
    { "resized_displaced", resized_displaced }, { "resized_negative", resized_negative },
};
static const struct kind of_records[] = {
    { "natural", natural }, { "packed", packed }, { "reordered", reordered },
    { "one_of_records", one_of_records },
};

static struct layout layout_new(const struct kind *kind, size_t bytes)
{
    struct layout l = { .type = MPI_DATATYPE_NULL, .count = 1, .elements = (int)(bytes / 4) };
    int size = -1;
    kind->build(&l, (int)(bytes / 4));
    MPI(MPI_Type_commit(&l.type));
    MPI(MPI_Type_size(l.type, &size));
    CHECK_EQ((long long)size * l.count, bytes);
    CHECK_EQ(l.bytes, bytes);
    ptrdiff_t low = 0, high = 0;
    for (size_t i = 0; i < l.segment_count; i++) {
        ptrdiff_t end = l.segments[i].offset + (ptrdiff_t)l.segments[i].length;
        low = l.segments[i].offset < low ? l.segments[i].offset : low;
        high = end > high ? end : high;
    }
    l.below = (size_t)-low;
    l.region = (size_t)(high - low);
    return l;
}

static void layout_free(struct layout *l)
{
    MPI(MPI_Type_free(&l->type));
    free(l->segments);
}

/* Puts the payload in its places; what lies between is left alone. */
static void scatter(const struct layout *l, unsigned char *region, const unsigned char *payload)
{
    for (size_t i = 0; i < l->segment_count; i++) {
        memcpy(region + (ptrdiff_t)l->below + l->segments[i].offset, payload,
               l->segments[i].length);
        payload += l->segments[i].length;
    }
}

static void send_as(enum send_mode mode, const void *at, const struct layout *l)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Request request = MPI_REQUEST_NULL;
    switch (mode) {
    case SEND: MPI(MPI_Send(at, l->count, l->type, peer, DATA, comm)); return;
    case SSEND: MPI(MPI_Ssend(at, l->count, l->type, peer, DATA, comm)); return;
    case BSEND: MPI(MPI_Bsend(at, l->count, l->type, peer, DATA, comm)); return;
    case ISEND: MPI(MPI_Isend(at, l->count, l->type, peer, DATA, comm, &request)); break;
    case ISSEND: MPI(MPI_Issend(at, l->count, l->type, peer, DATA, comm, &request)); break;
    case SEND_INIT:
        MPI(MPI_Send_init(at, l->count, l->type, peer, DATA, comm, &request));
        MPI(MPI_Start(&request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        MPI(MPI_Request_free(&request));
        return;
    case SEND_MODES: abort();
    }
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* `late` first waits until the message is there. */
static void receive_as(enum recv_mode mode, void *at, const struct layout *l, bool late,
                       MPI_Status *status)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message = MPI_MESSAGE_NULL;
    if (late || mode >= MRECV) {
        if (mode >= MRECV)
            MPI(MPI_Mprobe(peer, DATA, comm, &message, status));
        else
            MPI(MPI_Probe(peer, DATA, comm, status));
        CHECK_STATUS(status, peer, DATA, (int)l->bytes);
    }
    switch (mode) {
    case RECV: MPI(MPI_Recv(at, l->count, l->type, peer, DATA, comm, status)); return;
    case MRECV: MPI(MPI_Mrecv(at, l->count, l->type, &message, status)); break;
    case IRECV: MPI(MPI_Irecv(at, l->count, l->type, peer, DATA, comm, &request)); break;
    case IMRECV: MPI(MPI_Imrecv(at, l->count, l->type, &message, &request)); break;
    case RECV_INIT:
        MPI(MPI_Recv_init(at, l->count, l->type, peer, DATA, comm, &request));
        MPI(MPI_Start(&request));
        MPI(MPI_Wait(&request, status));
        MPI(MPI_Request_free(&request));
        return;
    case RECV_MODES: abort();
    }
    CHECK(message == MPI_MESSAGE_NULL);
    if (request != MPI_REQUEST_NULL)
        MPI(MPI_Wait(&request, status));
}

static void one_message(const struct layout *l, const unsigned char *payload, bool sender,
                        int mode, bool late)
{
    unsigned char *region = guarded_new(l->region), *image = guarded_new(l->region);
    scatter(l, image, payload);
    if (sender) {
        memcpy(region, image, l->region);
        send_as((enum send_mode)mode, region + l->below, l);
    } else {
        MPI_Status status;
        int count = -1, elements = -1;
        receive_as((enum recv_mode)mode, region + l->below, l, late, &status);
        CHECK_STATUS(&status, peer, DATA, (int)l->bytes);
        MPI(MPI_Get_count(&status, l->type, &count));
        MPI(MPI_Get_elements(&status, l->type, &elements));
        CHECK_EQ(count, l->count);
        CHECK_EQ(elements, l->elements);
    }
    if (memcmp(region, image, l->region) != 0) {
        size_t i = 0;
        while (region[i] == image[i])
            i++;
        doing(sender ? "send buffer changed at byte" : "wrong byte in receive buffer",
              (long long)i);
        CHECK_EQ(region[i], image[i]);
    }
    GUARDED_FREE(region, l->region);
    GUARDED_FREE(image, l->region);
}

/* Every layout into itself and two others, in every pairing of modes; for long messages
 * only as many pairings as use each mode. */
static void family(const struct kind *kinds, int kind_count, size_t bytes)
{
    static char text[160];
    static const int shifts[] = { 0, 1, 4 };
    unsigned char *payload = malloc(bytes);
    int pairings = bytes > 4096 ? SEND_MODES : SEND_MODES * RECV_MODES;
    int turn = 0;
    for (int from = 0; from < kind_count; from++) {
        for (int s = 0; s < (kind_count > 4 ? 3 : kind_count); s++) {
            int to = (from + (kind_count > 4 ? shifts[s] : s)) % kind_count;
            struct layout source = layout_new(&kinds[from], bytes);
            struct layout target = layout_new(&kinds[to], bytes);
            for (int p = 0; p < pairings; p++, turn++) {
                int send_mode = p % SEND_MODES;
                int recv_mode = bytes > 4096 ? (p + from) % RECV_MODES : p / SEND_MODES;
                bool sender = turn % 2 == check_rank % 2;
                snprintf(text, sizeof text, "%s by %s into %s by %s, bytes", kinds[from].name,
                         send_names[send_mode], kinds[to].name, recv_names[recv_mode]);
                doing(text, (long long)bytes);
                fill(payload, bytes, seed_of(0, turn, bytes));
                one_message(sender ? &source : &target, payload, sender,
                            sender ? send_mode : recv_mode, turn % 4 < 2);
            }
            layout_free(&source);
            layout_free(&target);
        }
    }
    free(payload);
}

/* No data: a count of zero of a gapped type, and a type without bytes. */
static void nothing(void)
{
    MPI_Datatype empty;
    MPI(MPI_Type_contiguous(0, MPI_INT, &empty));
    MPI(MPI_Type_commit(&empty));
    for (int p = 0; p < SEND_MODES * RECV_MODES; p++) {
        struct layout l = layout_new(&of_ints[p % 12], 64);
        MPI_Datatype own = l.type;
        int send_mode = p % SEND_MODES, recv_mode = p / SEND_MODES;
        doing("no data, pairing", p);
        l.segment_count = 0;
        l.bytes = 0;
        l.elements = 0;
        l.count = 0;
        one_message(&l, NULL, check_rank % 2 == 0, check_rank % 2 ? recv_mode : send_mode, p % 4 < 2);
        l.type = empty;
        one_message(&l, NULL, check_rank % 2 == 1, check_rank % 2 ? send_mode : recv_mode, p % 4 < 2);
        l.type = own;
        layout_free(&l);
    }
    MPI(MPI_Type_free(&empty));
}

/* A message that ends within an element of the receive's type. */
static void partial(void)
{
    static const int lengths[] = { 1, 2, 5, 41, 1001, 30001 };
    for (int i = 0; i < 6; i++) {
        int n = lengths[i], room = n + 7 + n % 2;
        size_t region = 20 * (size_t)(room / 2);
        unsigned char *payload = malloc(4 * (size_t)n);
        doing("partial, ints", n);
        fill(payload, 4 * (size_t)n, seed_of(0, n, 4));
        if (check_rank % 2 == i % 2) {
            MPI(MPI_Send(payload, n, MPI_INT, peer, DATA, MPI_COMM_WORLD));
        } else {
            struct layout l = { .count = 1 };
            unsigned char *got = guarded_new(region), *want = guarded_new(region);
            MPI_Status status;
            int count = 0, elements = 0;
            resized_negative(&l, room);
            MPI(MPI_Type_commit(&l.type));
            MPI(MPI_Recv(got, l.count, l.type, peer, DATA, MPI_COMM_WORLD, &status));
            CHECK_STATUS(&status, peer, DATA, 4 * n);
            MPI(MPI_Get_count(&status, l.type, &count));
            MPI(MPI_Get_elements(&status, l.type, &elements));
            CHECK_EQ(count, n % 2 ? MPI_UNDEFINED : n / 2);
            CHECK_EQ(elements, n);
            for (int k = 0; k < n; k++)
                memcpy(want + 20 * (k / 2) + 4 * (k % 2), payload + 4 * k, 4);
            CHECK(memcmp(got, want, region) == 0);
            GUARDED_FREE(got, region);
            GUARDED_FREE(want, region);
            layout_free(&l);
        }
        free(payload);
    }
}

/* A type may be freed while a communication still uses it. */
static void freed_in_flight(size_t bytes)
{
    struct layout l = layout_new(&of_ints[1], bytes);
    unsigned char *out = guarded_new(l.region), *in = guarded_new(l.region);
    unsigned char *want = guarded_new(l.region), *payload = malloc(bytes);
    MPI_Request pair[2];
    doing("type freed in flight", (long long)bytes);
    fill(payload, bytes, seed_of(check_rank, 5, bytes));
    scatter(&l, out, payload);
    fill(payload, bytes, seed_of(peer, 5, bytes));
    scatter(&l, want, payload);
    MPI(MPI_Irecv(in, l.count, l.type, peer, DATA, MPI_COMM_WORLD, &pair[0]));
    MPI(MPI_Isend(out, l.count, l.type, peer, DATA, MPI_COMM_WORLD, &pair[1]));
    layout_free(&l);
    MPI(MPI_Waitall(2, pair, MPI_STATUSES_IGNORE));
    CHECK(memcmp(in, want, l.region) == 0);
    GUARDED_FREE(out, l.region);
    GUARDED_FREE(in, l.region);
    GUARDED_FREE(want, l.region);
    free(payload);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 8, 64, 120, 128, 136, 256, 1024, 4096, 65536, 1 << 20 };
    int space = 4 * ((1 << 20) + MPI_BSEND_OVERHEAD);
    void *bsend_space = malloc((size_t)space);
    check_start(&argc, &argv, "datatypes", MPI_THREAD_SINGLE, 2);
    if (!CHECK(check_size % 2 == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    peer = check_rank ^ 1;
    MPI(MPI_Buffer_attach(bsend_space, space));
    nothing();
    for (int s = 0; s < 10; s++) {
        family(of_ints, sizeof of_ints / sizeof of_ints[0], sizes[s]);
        if (sizes[s] % 16 == 0)
            family(of_records, sizeof of_records / sizeof of_records[0], sizes[s]);
    }
    partial();
    freed_in_flight(8);
    freed_in_flight(4096);
    freed_in_flight(1 << 20);
    MPI(MPI_Buffer_detach(&bsend_space, &space));
    free(bsend_space);
    return check_finish();
}
