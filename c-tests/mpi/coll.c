/* Every collective, blocking and not, in place and not, on several communicators, with all
 * results verified. Works for any number of ranks up to 8.
 *
 * usage: coll [small]     "small" stops at 4 KiB, for slow providers. */
#include "check.h"

enum { GAP = 3, MAX_RANKS = 8 };

static const int sizes[] = { 1, 7, 64, 250, 1024, 4096, 20000, 65536, 256 << 10 };
static int size_count = sizeof sizes / sizeof sizes[0];

/* One communicator and the variant of the collectives in hand. `serial` names the call, so
 * that content left over from an earlier one is never taken for right. */
struct group {
    MPI_Comm comm;
    const char *name;
    int me, size;
    int n;
    bool nonblocking, in_place;
    int serial;
    int counts[MAX_RANKS], places[MAX_RANKS];
};

#define RUN(g, Name, name, ...)                                         \
    do {                                                                \
        if ((g)->nonblocking) {                                         \
            MPI_Request request_ = MPI_REQUEST_NULL;                    \
            doing("MPI_I" #name, (g)->n);                               \
            MPI(MPI_I##name(__VA_ARGS__, (g)->comm, &request_));        \
            MPI(MPI_Wait(&request_, MPI_STATUS_IGNORE));                \
            CHECK(request_ == MPI_REQUEST_NULL);                        \
        } else {                                                        \
            doing("MPI_" #Name, (g)->n);                                \
            MPI(MPI_##Name(__VA_ARGS__, (g)->comm));                    \
        }                                                               \
    } while (0)

/* Content of the block that rank `from` has for rank `to`. */
static unsigned block_seed(const struct group *g, int from, int to)
{
    return seed_of(from * 16 + to, g->serial, (size_t)g->n);
}

/* The v-forms use a shorter block for each further rank, some of them empty. */
static void uneven(struct group *g)
{
    for (int i = 0; i < g->size; i++) {
        g->counts[i] = g->n / (i + 1);
        g->places[i] = (g->size - 1 - i) * (g->n + GAP);
    }
}

static void even(struct group *g)
{
    for (int i = 0; i < g->size; i++) {
        g->counts[i] = g->n;
        g->places[i] = i * g->n;
    }
}

static size_t room(const struct group *g)
{
    return (size_t)g->size * (size_t)(g->n + GAP);
}

static void barrier(struct group *g)
{
    if (g->nonblocking) {
        MPI_Request request;
        int flag = 0;
        doing("MPI_Ibarrier", 0);
        MPI(MPI_Ibarrier(g->comm, &request));
        while (!flag)
            MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    } else {
        doing("MPI_Barrier", 0);
        MPI(MPI_Barrier(g->comm));
    }
}

static void bcast(struct group *g, int root)
{
    unsigned char *buffer = guarded_new((size_t)g->n);
    if (g->me == root)
        fill(buffer, (size_t)g->n, block_seed(g, root, 0));
    RUN(g, Bcast, bcast, buffer, g->n, MPI_BYTE, root);
    VERIFY(buffer, (size_t)g->n, block_seed(g, root, 0));
    GUARDED_FREE(buffer, (size_t)g->n);
}

/* All blocks at their places, the gaps between them untouched. */
static void verify_blocks(const struct group *g, const unsigned char *all, bool to_me)
{
    for (int i = 0; i < g->size; i++) {
        const unsigned char *block = all + g->places[i];
        VERIFY(block, (size_t)g->counts[i], block_seed(g, i, to_me ? g->me : 0));
        if (g->places[g->size - 1] == 0)
            UNTOUCHED(block + g->counts[i], block + g->n + GAP);
    }
}

static void gather(struct group *g, int root, bool v)
{
    int mine = g->counts[g->me];
    bool in_place = g->in_place && g->me == root;
    unsigned char *all = guarded_new(room(g)), *own = guarded_new((size_t)mine);
    unsigned char *from = in_place ? all + g->places[root] : own;
    fill(from, (size_t)mine, block_seed(g, g->me, 0));
    if (v)
        RUN(g, Gatherv, gatherv, in_place ? MPI_IN_PLACE : own, mine, MPI_BYTE, all, g->counts,
            g->places, MPI_BYTE, root);
    else
        RUN(g, Gather, gather, in_place ? MPI_IN_PLACE : own, mine, MPI_BYTE, all, g->n,
            MPI_BYTE, root);
    if (g->me == root)
        verify_blocks(g, all, false);
    else
        UNTOUCHED(all, all + room(g));
    GUARDED_FREE(own, (size_t)mine);
    GUARDED_FREE(all, room(g));
}

static void scatter(struct group *g, int root, bool v)
{
    int mine = g->counts[g->me];
    bool in_place = g->in_place && g->me == root;
    unsigned char *all = guarded_new(room(g)), *own = guarded_new((size_t)mine);
    if (g->me == root)
        for (int i = 0; i < g->size; i++)
            fill(all + g->places[i], (size_t)g->counts[i], block_seed(g, root, i));
    if (v)
        RUN(g, Scatterv, scatterv, all, g->counts, g->places, MPI_BYTE,
            in_place ? MPI_IN_PLACE : own, mine, MPI_BYTE, root);
    else
        RUN(g, Scatter, scatter, all, g->n, MPI_BYTE, in_place ? MPI_IN_PLACE : own, mine,
            MPI_BYTE, root);
    VERIFY(in_place ? all + g->places[root] : own, (size_t)mine, block_seed(g, root, g->me));
    GUARDED_FREE(own, (size_t)mine);
    GUARDED_FREE(all, room(g));
}

static void allgather(struct group *g, bool v)
{
    int mine = g->counts[g->me];
    unsigned char *all = guarded_new(room(g)), *own = guarded_new((size_t)mine);
    fill(g->in_place ? all + g->places[g->me] : own, (size_t)mine, block_seed(g, g->me, 0));
    if (v)
        RUN(g, Allgatherv, allgatherv, g->in_place ? MPI_IN_PLACE : own, mine, MPI_BYTE, all,
            g->counts, g->places, MPI_BYTE);
    else
        RUN(g, Allgather, allgather, g->in_place ? MPI_IN_PLACE : own, mine, MPI_BYTE, all, g->n,
            MPI_BYTE);
    verify_blocks(g, all, false);
    GUARDED_FREE(own, (size_t)mine);
    GUARDED_FREE(all, room(g));
}

/* Ranks i and j exchange n / (1 + |i - j|) bytes. Alltoallw sends to odd ranks from every
 * second byte. */
static void alltoall(struct group *g, char form)
{
    int out_counts[MAX_RANKS], out_places[MAX_RANKS];
    MPI_Datatype in_types[MAX_RANKS], out_types[MAX_RANKS], strided[MAX_RANKS];
    unsigned char *in = guarded_new(room(g)), *out = guarded_new(2 * room(g));
    for (int i = 0; i < g->size; i++) {
        int n = form == ' ' ? g->n : g->n / (1 + abs(i - g->me));
        bool spread = form == 'w' && i % 2 == 1 && !g->in_place;
        unsigned char *block = out + 2 * i * (g->n + GAP);
        g->counts[i] = out_counts[i] = n;
        out_places[i] = 2 * i * (g->n + GAP);
        in_types[i] = out_types[i] = strided[i] = MPI_BYTE;
        if (form == ' ')
            block = out + i * g->n;
        if (g->in_place)
            block = in + g->places[i];
        fill(block, (size_t)n, block_seed(g, g->me, i));
        if (spread) {
            for (int b = n - 1; b >= 0; b--)
                block[2 * b] = pattern(block_seed(g, g->me, i), (size_t)b);
            MPI(MPI_Type_vector(n, 1, 2, MPI_BYTE, &strided[i]));
            MPI(MPI_Type_commit(&strided[i]));
            out_types[i] = strided[i];
            out_counts[i] = 1;
        }
    }
    void *from = g->in_place ? MPI_IN_PLACE : (void *)out;
    if (form == ' ')
        RUN(g, Alltoall, alltoall, from, g->n, MPI_BYTE, in, g->n, MPI_BYTE);
    else if (form == 'v')
        RUN(g, Alltoallv, alltoallv, from, out_counts, out_places, MPI_BYTE, in, g->counts,
            g->places, MPI_BYTE);
    else
        RUN(g, Alltoallw, alltoallw, from, out_counts, out_places, out_types, in, g->counts,
            g->places, in_types);
    verify_blocks(g, in, true);
    for (int i = 0; i < g->size; i++)
        if (strided[i] != MPI_BYTE)
            MPI(MPI_Type_free(&strided[i]));
    GUARDED_FREE(out, 2 * room(g));
    GUARDED_FREE(in, room(g));
}

/* Reductions: bytes xored (some hosts let a byte sum saturate), ints maximised, and affine maps composed, where the order of the
 * ranks shows in the result. */
enum kind { BYTE_XOR, INT_MAX_OF, COMPOSE, KINDS };

struct affine {
    unsigned a, b;
};

static MPI_Op compose_op;
static MPI_Datatype affine_type;

static struct affine fold(enum kind kind, struct affine x, struct affine y)
{
    switch (kind) {
    case BYTE_XOR: return (struct affine){ x.a ^ y.a, 0 };
    case INT_MAX_OF: return (int)x.a > (int)y.a ? x : y;
    default: return (struct affine){ x.a * y.a, x.a * y.b + x.b };
    }
}

static void compose(void *in, void *inout, int *count, MPI_Datatype *type)
{
    struct affine *left = in, *right = inout;
    (void)type;
    for (int i = 0; i < *count; i++)
        right[i] = fold(COMPOSE, left[i], right[i]);
}

static int element(enum kind kind)
{
    return kind == BYTE_XOR ? 1 : kind == INT_MAX_OF ? (int)sizeof(int) : (int)sizeof(struct affine);
}

static struct affine input(const struct group *g, enum kind kind, int rank, int i)
{
    unsigned x = block_seed(g, rank, 0) * 2654435761u + (unsigned)i * 40503u;
    x ^= x >> 13;
    return kind == BYTE_XOR ? (struct affine){ x & 0xFF, 0 }
         : kind == INT_MAX_OF ? (struct affine){ x, 0 }
                              : (struct affine){ x | 1, x >> 7 };
}

static void put_inputs(const struct group *g, enum kind kind, unsigned char *at, int count)
{
    for (int i = 0; i < count; i++) {
        struct affine value = input(g, kind, g->me, i);
        if (kind == BYTE_XOR)
            at[i] = (unsigned char)value.a;
        else
            memcpy(at + (size_t)i * (size_t)element(kind), &value, (size_t)element(kind));
    }
}

/* Elements first..first+count of the fold over ranks 0..last stand at `at`. */
static void verify_fold(const struct group *g, enum kind kind, const unsigned char *at, int first,
                        int count, int last)
{
    for (int i = 0; i < count; i++) {
        struct affine want = input(g, kind, 0, first + i), got = { 0, 0 };
        for (int rank = 1; rank <= last; rank++)
            want = fold(kind, want, input(g, kind, rank, first + i));
        if (kind == BYTE_XOR)
            got.a = at[i];
        else
            memcpy(&got, at + (size_t)i * (size_t)element(kind), (size_t)element(kind));
        if (!CHECK_EQ(got.a, want.a) || (kind == COMPOSE && !CHECK_EQ(got.b, want.b)))
            return;
    }
}

enum reduction { REDUCE, ALLREDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, REDUCTIONS };

static void reduce(struct group *g, enum reduction which, enum kind kind, int root)
{
    static const MPI_Op ops[2] = { MPI_BXOR, MPI_MAX };
    MPI_Op op = kind == COMPOSE ? compose_op : ops[kind];
    MPI_Datatype type = kind == BYTE_XOR ? MPI_UNSIGNED_CHAR : kind == INT_MAX_OF ? MPI_INT : affine_type;
    int n = g->n / element(kind), total = n, mine = n, first = 0, last = g->size - 1;
    int counts[MAX_RANKS];
    bool in_place = g->in_place && (which != REDUCE || g->me == root);
    if (which == REDUCE_SCATTER || which == REDUCE_SCATTER_BLOCK) {
        total = 0;
        for (int i = 0; i < g->size; i++) {
            counts[i] = which == REDUCE_SCATTER_BLOCK ? n : n / (i + 1);
            first = i == g->me ? total : first;
            total += counts[i];
        }
        mine = counts[g->me];
    }
    size_t bytes = (size_t)total * (size_t)element(kind);
    unsigned char *out = guarded_new(bytes), *in = guarded_new(bytes);
    void *from = in_place ? MPI_IN_PLACE : (void *)out;
    put_inputs(g, kind, in_place ? in : out, total);
    switch (which) {
    case REDUCE: RUN(g, Reduce, reduce, from, in, n, type, op, root); break;
    case ALLREDUCE: RUN(g, Allreduce, allreduce, from, in, n, type, op); break;
    case REDUCE_SCATTER:
        RUN(g, Reduce_scatter, reduce_scatter, from, in, counts, type, op);
        break;
    case REDUCE_SCATTER_BLOCK:
        RUN(g, Reduce_scatter_block, reduce_scatter_block, from, in, n, type, op);
        break;
    case SCAN: RUN(g, Scan, scan, from, in, n, type, op); last = g->me; break;
    default: RUN(g, Exscan, exscan, from, in, n, type, op); last = g->me - 1; break;
    }
    if (which == REDUCE && g->me != root)
        UNTOUCHED(in, in + bytes);
    else if (last >= 0)
        verify_fold(g, kind, in, first, mine, last);
    GUARDED_FREE(out, bytes);
    GUARDED_FREE(in, bytes);
}

static void all_reductions(struct group *g)
{
    for (int kind = 0; kind < KINDS; kind++) {
        for (int which = 0; which < REDUCTIONS; which++) {
            if (g->n < element((enum kind)kind))
                continue;
            g->serial++;
            reduce(g, (enum reduction)which, (enum kind)kind, g->serial % g->size);
        }
    }
}

static void everything(struct group *g)
{
    for (int root = g->n > 4096 ? g->size - 1 : 0; root < g->size; root++) {
        g->serial++;
        bcast(g, root);
        even(g);
        gather(g, root, false);
        scatter(g, root, false);
        uneven(g);
        gather(g, root, true);
        scatter(g, root, true);
    }
    g->serial++;
    even(g);
    allgather(g, false);
    alltoall(g, ' ');
    uneven(g);
    allgather(g, true);
    alltoall(g, 'v');
    alltoall(g, 'w');
    all_reductions(g);
    barrier(g);
}

/* Many collectives open at once on all communicators, with point-to-point messages between
 * them, completed together. */
static void overlapping(struct group *groups, int count, int n)
{
    enum { ROUNDS = 6, EACH = 3 };
    static int one[ROUNDS * 4], sum[ROUNDS * 4];
    unsigned char *out[ROUNDS * 4], *in[ROUNDS * 4], *shared[ROUNDS * 4];
    MPI_Request requests[ROUNDS * 4 * EACH + 2];
    int opened = 0, used = 0, to = (check_rank + 1) % check_size;
    int from = (check_rank + check_size - 1) % check_size;
    unsigned char token_out = (unsigned char)check_rank, token_in = 0xFF;
    doing("overlapping collectives", n);
    MPI(MPI_Irecv(&token_in, 1, MPI_BYTE, from, 5, MPI_COMM_WORLD, &requests[used++]));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++, opened++) {
            struct group *g = &groups[i];
            size_t bytes = (size_t)n * (size_t)g->size;
            int root = round % g->size;
            g->n = n;
            g->serial++;
            one[opened] = g->me + round;
            out[opened] = guarded_new(bytes);
            in[opened] = guarded_new(bytes);
            shared[opened] = guarded_new((size_t)n);
            for (int to_rank = 0; to_rank < g->size; to_rank++)
                fill(out[opened] + to_rank * n, (size_t)n, block_seed(g, g->me, to_rank));
            if (g->me == root)
                fill(shared[opened], (size_t)n, block_seed(g, 15, round));
            MPI(MPI_Ialltoall(out[opened], n, MPI_BYTE, in[opened], n, MPI_BYTE, g->comm,
                              &requests[used++]));
            MPI(MPI_Iallreduce(&one[opened], &sum[opened], 1, MPI_INT, MPI_SUM, g->comm,
                               &requests[used++]));
            MPI(MPI_Ibcast(shared[opened], n, MPI_BYTE, root, g->comm, &requests[used++]));
        }
    }
    MPI(MPI_Isend(&token_out, 1, MPI_BYTE, to, 5, MPI_COMM_WORLD, &requests[used++]));
    MPI(MPI_Waitall(used, requests, MPI_STATUSES_IGNORE));
    CHECK_EQ(token_in, from);
    for (int i = 0; i < opened; i++) {
        struct group *g = &groups[i % count];
        int round = i / count, last = g->serial;
        size_t bytes = (size_t)n * (size_t)g->size;
        g->serial = last - ROUNDS + 1 + round;
        CHECK_EQ(sum[i], g->size * (g->size - 1) / 2 + g->size * round);
        VERIFY(shared[i], (size_t)n, block_seed(g, 15, round));
        for (int rank = 0; rank < g->size; rank++)
            VERIFY(in[i] + rank * n, (size_t)n, block_seed(g, rank, g->me));
        g->serial = last;
        GUARDED_FREE(out[i], bytes);
        GUARDED_FREE(in[i], bytes);
        GUARDED_FREE(shared[i], (size_t)n);
    }
}

int main(int argc, char **argv)
{
    struct group groups[4] = { { .name = "WORLD" }, { .name = "dup" }, { .name = "reversed" },
                               { .name = "parity" } };
    check_start(&argc, &argv, "coll", MPI_THREAD_SINGLE, 1);
    if (argc > 1 && strcmp(argv[1], "small") == 0)
        size_count -= 3;
    if (!CHECK(check_size <= MAX_RANKS))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI(MPI_Type_contiguous(2, MPI_UNSIGNED, &affine_type));
    MPI(MPI_Type_commit(&affine_type));
    MPI(MPI_Op_create(compose, 0, &compose_op));
    groups[0].comm = MPI_COMM_WORLD;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &groups[1].comm));
    MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -check_rank, &groups[2].comm));
    MPI(MPI_Comm_split(MPI_COMM_WORLD, check_rank % 2, check_rank, &groups[3].comm));
    for (int i = 0; i < 4; i++) {
        struct group *g = &groups[i];
        MPI(MPI_Comm_rank(g->comm, &g->me));
        MPI(MPI_Comm_size(g->comm, &g->size));
        for (int s = 0; s < size_count; s++) {
            for (int variant = 0; variant < 4; variant++) {
                g->n = sizes[s];
                g->nonblocking = variant & 1;
                g->in_place = variant & 2;
                everything(g);
            }
        }
    }
    for (int s = 0; s < size_count; s += 2)
        overlapping(groups, 4, sizes[s]);
    for (int i = 1; i < 4; i++)
        MPI(MPI_Comm_free(&groups[i].comm));
    MPI(MPI_Op_free(&compose_op));
    MPI(MPI_Type_free(&affine_type));
    return check_finish();
}
