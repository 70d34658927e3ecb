/* Messages at every size where a library or a provider changes its protocol, up to very long
 * ones, all ranks sending and receiving at once around a ring of any number from 2.
 *
 * usage: bigmsg [longest in bytes, default 64 MiB] */
#include "check.h"

enum { DATA = 20, STARTED = 30, MIB = 1 << 20, BLOCK = 1000, STRIDE = 1024, PIECES = 5 };

enum mode { POSTED, SENDRECV, LATE, SYNCHRONOUS, PROBED, REPLACED, MODES };

static const char *const mode_names[MODES] = {
    "Irecv, Isend", "Sendrecv", "Isend, late Recv", "Irecv, Issend", "Isend, Mprobe",
    "Sendrecv_replace",
};

static size_t longest = 64 * (size_t)MIB;
static int right, left;
static unsigned serial;
static unsigned char *out, *in;

static uint64_t exchange_seed(int source, int number)
{
    return (uint64_t)source * 1000000007u + serial * 64u + (uint64_t)number;
}

/* Afterwards the left neighbour has started what it started before. */
static void both_started(void)
{
    MPI(MPI_Sendrecv(NULL, 0, MPI_BYTE, right, STARTED, NULL, 0, MPI_BYTE, left, STARTED,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

/* Every other exchange has room for more than comes and starts at an odd address. */
static void exchange(enum mode mode, size_t size)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    size_t odd = ++serial % 2;
    unsigned char *from = out + odd, *to = in + 3 * odd;
    int n = (int)size, room = n + (int)odd * 16;
    MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
    MPI_Status status[2];
    MPI_Message message;
    doing(mode_names[mode], n);
    fill_words(from, size, exchange_seed(check_rank, 0));
    memset(to - 3 * odd, 0xA5, 3 * odd);
    memset(to + size, 0xA5, CHECK_GUARD);
    switch (mode) {
    case POSTED:
    case SYNCHRONOUS:
        MPI(MPI_Irecv(to, room, MPI_BYTE, left, DATA, comm, &requests[0]));
        if (mode == POSTED)
            MPI(MPI_Isend(from, n, MPI_BYTE, right, DATA, comm, &requests[1]));
        else
            MPI(MPI_Issend(from, n, MPI_BYTE, right, DATA, comm, &requests[1]));
        MPI(MPI_Waitall(2, requests, status));
        break;
    case SENDRECV:
        MPI(MPI_Sendrecv(from, n, MPI_BYTE, right, DATA, to, room, MPI_BYTE, left, DATA, comm,
                         &status[0]));
        break;
    case LATE:
    case PROBED:
        MPI(MPI_Isend(from, n, MPI_BYTE, right, DATA, comm, &requests[1]));
        both_started();
        if (mode == PROBED) {
            MPI(MPI_Mprobe(left, MPI_ANY_TAG, comm, &message, &status[0]));
            CHECK_STATUS(&status[0], left, DATA, n);
            MPI(MPI_Mrecv(to, room, MPI_BYTE, &message, &status[0]));
        } else {
            MPI(MPI_Recv(to, room, MPI_BYTE, left, DATA, comm, &status[0]));
        }
        MPI(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        break;
    default:
        memcpy(to, from, size);
        MPI(MPI_Sendrecv_replace(to, n, MPI_BYTE, right, DATA, left, DATA, comm, &status[0]));
        break;
    }
    CHECK_STATUS(&status[0], left, DATA, n);
    VERIFY_WORDS(to, size, exchange_seed(left, 0));
    VERIFY_WORDS(from, size, exchange_seed(check_rank, 0));
    UNTOUCHED(to - 3 * odd, to);
    UNTOUCHED(to + size, to + size + CHECK_GUARD);
}

/* What a provider puts before a payload moves the border down by a few dozen bytes. */
static void around_borders(void)
{
    static const int around[] = { -96, -80, -64, -48, -40, -32, -24, -16, -8, -1, 0, 1, 8, 64 };
    for (int mode = 0; mode < MODES; mode++) {
        for (size_t border = 64; border <= 16 * MIB; border *= 2) {
            for (size_t a = 0; a < sizeof around / sizeof *around; a++) {
                long size = (long)border + around[a];
                bool small = border <= MIB / 8;
                bool large = (border == MIB || border == 16 * MIB) && labs(around[a]) <= 1;
                if (size >= 0 && (size_t)size <= longest && (small || large))
                    exchange((enum mode)mode, (size_t)size);
            }
        }
    }
    exchange(POSTED, longest);
    exchange(SENDRECV, longest);
    exchange(LATE, longest - 1);
}

/* Long ones in flight together, received in another order than sent. */
static void several_at_once(void)
{
    size_t slice = longest / PIECES;
    const size_t sizes[PIECES] = { slice, slice / 2 + 1, slice - 1, 3, slice / 16 };
    MPI_Request sent[PIECES], posted[PIECES];
    for (int posted_before = 0; posted_before <= PIECES; posted_before += 2) {
        serial++;
        doing("several at once, of which posted before", posted_before);
        for (int p = PIECES - 1; p >= 0; p--) {
            if (p < posted_before)
                MPI(MPI_Irecv(in + (size_t)p * slice, (int)slice, MPI_BYTE, left, DATA + p,
                              MPI_COMM_WORLD, &posted[p]));
        }
        for (int p = 0; p < PIECES; p++) {
            unsigned char *from = out + (size_t)p * slice;
            fill_words(from, sizes[p], exchange_seed(check_rank, p));
            MPI(MPI_Isend(from, (int)sizes[p], MPI_BYTE, right, DATA + p, MPI_COMM_WORLD,
                          &sent[p]));
        }
        both_started();
        for (int p = PIECES - 1; p >= posted_before; p--)
            MPI(MPI_Irecv(in + (size_t)p * slice, (int)slice, MPI_BYTE, left, DATA + p,
                          MPI_COMM_WORLD, &posted[p]));
        for (int p = 0; p < PIECES; p++) {
            MPI_Status status;
            MPI(MPI_Wait(&posted[p], &status));
            CHECK_STATUS(&status, left, DATA + p, (int)sizes[p]);
            VERIFY_WORDS(in + (size_t)p * slice, sizes[p], exchange_seed(left, p));
        }
        MPI(MPI_Waitall(PIECES, sent, MPI_STATUSES_IGNORE));
    }
}

enum shape { PLAIN, BLOCKS, RECORDS, BACKWARDS, SHAPES };

static size_t span_of(enum shape shape, size_t n)
{
    switch (shape) {
    case BLOCKS: return n / BLOCK * STRIDE;
    case RECORDS: return n / 7 * 16;
    case BACKWARDS: return n * 2;
    default: return n;
    }
}

/* Where byte `k` of a payload of `n` lies. */
static inline size_t place_of(enum shape shape, size_t n, size_t k)
{
    switch (shape) {
    case BLOCKS: return k / BLOCK * STRIDE + k % BLOCK;
    case RECORDS: return k / 7 * 16 + (k % 7 < 4 ? k % 7 : k % 7 + 4);
    case BACKWARDS: return (n / BLOCK - 1 - k / BLOCK) * 2 * BLOCK + k % BLOCK;
    default: return k;
    }
}

/* `n` is a multiple of 7 * BLOCK. */
static void make_type(enum shape shape, size_t n, MPI_Datatype *type, int *count)
{
    int blocks = (int)(n / BLOCK), parts[2] = { 4, 3 }, *displacements;
    MPI_Aint offsets[2] = { 0, 8 };
    MPI_Datatype record, bytes[2] = { MPI_BYTE, MPI_BYTE };
    *count = 1;
    switch (shape) {
    case BLOCKS:
        MPI(MPI_Type_vector(blocks, BLOCK, STRIDE, MPI_BYTE, type));
        break;
    case RECORDS:
        MPI(MPI_Type_create_struct(2, parts, offsets, bytes, &record));
        MPI(MPI_Type_create_resized(record, 0, 16, type));
        MPI(MPI_Type_free(&record));
        *count = (int)(n / 7);
        break;
    case BACKWARDS:
        displacements = malloc((size_t)blocks * sizeof *displacements);
        if (displacements == NULL)
            abort();
        for (int b = 0; b < blocks; b++)
            displacements[b] = (blocks - 1 - b) * 2 * BLOCK;
        MPI(MPI_Type_create_indexed_block(blocks, BLOCK, displacements, MPI_BYTE, type));
        free(displacements);
        break;
    default:
        MPI(MPI_Type_contiguous((int)n, MPI_BYTE, type));
        break;
    }
    MPI(MPI_Type_commit(type));
}

static void exchange_shaped(enum shape sent_as, enum shape received_as, size_t n, bool late)
{
    size_t span = span_of(received_as, n);
    MPI_Datatype send_type, receive_type;
    MPI_Request requests[2];
    MPI_Status status[2];
    int send_count, receive_count;
    uint64_t seed;
    serial++;
    doing("not contiguous, shapes", sent_as * 10 + received_as);
    make_type(sent_as, n, &send_type, &send_count);
    make_type(received_as, n, &receive_type, &receive_count);
    seed = exchange_seed(check_rank, 0);
    for (size_t k = 0; k < n; k++)
        out[place_of(sent_as, n, k)] = byte_of(seed, k);
    memset(in, 0xA5, span + CHECK_GUARD);
    if (!late)
        MPI(MPI_Irecv(in, receive_count, receive_type, left, DATA, MPI_COMM_WORLD, &requests[0]));
    MPI(MPI_Isend(out, send_count, send_type, right, DATA, MPI_COMM_WORLD, &requests[1]));
    if (late) {
        both_started();
        MPI(MPI_Irecv(in, receive_count, receive_type, left, DATA, MPI_COMM_WORLD, &requests[0]));
    }
    MPI(MPI_Waitall(2, requests, status));
    CHECK_STATUS(&status[0], left, DATA, (int)n);
    seed = exchange_seed(left, 0);
    for (size_t k = 0; k < n; k++) {
        unsigned char *byte = in + place_of(received_as, n, k);
        if (!CHECK_EQ(*byte, byte_of(seed, k)))
            break;
        *byte = 0xA5;
    }
    UNTOUCHED(in, in + span + CHECK_GUARD);
    MPI(MPI_Type_free(&send_type));
    MPI(MPI_Type_free(&receive_type));
}

static void not_contiguous(void)
{
    static const size_t lengths[] = { 7000, 70000, 1050000, 16800000 };
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        size_t n = lengths[l];
        if (n * 16 / 7 > longest)
            break;
        for (int shape = BLOCKS; shape < SHAPES; shape++) {
            int other = shape == SHAPES - 1 ? (int)BLOCKS : shape + 1;
            exchange_shaped((enum shape)shape, PLAIN, n, false);
            exchange_shaped(PLAIN, (enum shape)shape, n, l % 2 == 1);
            exchange_shaped((enum shape)shape, (enum shape)other, n, l % 2 == 0);
        }
    }
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "bigmsg", MPI_THREAD_SINGLE, 2);
    if (argc > 1)
        longest = strtoul(argv[1], NULL, 0);
    if (!CHECK(longest >= 64 && longest <= INT_MAX - 64))
        MPI_Abort(MPI_COMM_WORLD, 2);
    right = (check_rank + 1) % check_size;
    left = (check_rank + check_size - 1) % check_size;
    out = guarded_new(longest + 16);
    in = guarded_new(longest + 16);
    around_borders();
    several_at_once();
    not_contiguous();
    free(out - CHECK_GUARD);
    free(in - CHECK_GUARD);
    return check_finish();
}
