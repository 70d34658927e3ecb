/* Communicators: hundreds alive at once, ids used again, reordered ranks, groups and
 * Cartesian grids. Works for any number of ranks from 2. */
#include "check.h"

enum { DATA = 20, RESULT = 21, MAX_RANKS = 64 };

/* All of `comm` exchange one message with everybody, themselves included, and receive from
 * anybody. `world[r]` is the rank in MPI_COMM_WORLD that rank r of `comm` must have. */
static void everybody_to_everybody(MPI_Comm comm, const int *world, size_t n, int tag)
{
    int me, size;
    bool seen[MAX_RANKS] = { false };
    MPI_Request sends[MAX_RANKS];
    unsigned char *out[MAX_RANKS];
    MPI(MPI_Comm_rank(comm, &me));
    MPI(MPI_Comm_size(comm, &size));
    CHECK_EQ(world[me], check_rank);
    for (int to = 0; to < size; to++) {
        out[to] = guarded_new(n);
        fill(out[to], n, seed_of(check_rank * MAX_RANKS + world[to], tag, n));
        if ((me + to) % 2 == 0)
            MPI(MPI_Isend(out[to], (int)n, MPI_BYTE, to, tag, comm, &sends[to]));
        else
            MPI(MPI_Issend(out[to], (int)n, MPI_BYTE, to, tag, comm, &sends[to]));
    }
    for (int i = 0; i < size; i++) {
        unsigned char *in = guarded_new(n);
        MPI_Status status;
        int flag = 0, source;
        if (i % 2 == 0)
            while (!flag)
                MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &flag, &status));
        else
            MPI(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
        source = status.MPI_SOURCE;
        CHECK_STATUS(&status, source, tag, (int)n);
        MPI(MPI_Recv(in, (int)n, MPI_BYTE, i % 3 ? source : MPI_ANY_SOURCE, tag, comm, &status));
        CHECK_STATUS(&status, i % 3 ? source : status.MPI_SOURCE, tag, (int)n);
        source = status.MPI_SOURCE;
        if (CHECK(source >= 0 && source < size) && CHECK(!seen[source])) {
            seen[source] = true;
            VERIFY(in, n, seed_of(world[source] * MAX_RANKS + check_rank, tag, n));
        }
        GUARDED_FREE(in, n);
    }
    MPI(MPI_Waitall(size, sends, MPI_STATUSES_IGNORE));
    for (int to = 0; to < size; to++) {
        CHECK(seen[to]);
        GUARDED_FREE(out[to], n);
    }
    /* Nobody's next messages may meet the wildcards above. */
    MPI(MPI_Barrier(comm));
}

enum { MANY = 300 };

/* The same tag on every communicator: only the communicator tells the messages apart. */
static void cross_traffic(MPI_Comm *comms, const int *order, int count)
{
    static int out[MANY], in[MANY];
    static MPI_Request sends[MANY], receives[MANY];
    MPI_Status status;
    int right = (check_rank + 1) % check_size, left = (check_rank + check_size - 1) % check_size;
    int early = count / 2;

    /* One half is posted before anything is sent, the other half arrives unexpected. */
    for (int k = 0; k < early; k++)
        MPI(MPI_Irecv(&in[k], 1, MPI_INT, k % 2 ? left : MPI_ANY_SOURCE, DATA, comms[order[k]],
                      &receives[k]));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int k = count - 1; k >= 0; k--) {
        out[k] = order[k] * 1000 + check_rank;
        if (k % 4 == 1)
            MPI(MPI_Issend(&out[k], 1, MPI_INT, right, DATA, comms[order[k]], &sends[k]));
        else
            MPI(MPI_Isend(&out[k], 1, MPI_INT, right, DATA, comms[order[k]], &sends[k]));
    }
    for (int k = early; k < count; k++) {
        MPI(MPI_Recv(&in[k], 1, MPI_INT, k % 2 ? left : MPI_ANY_SOURCE, MPI_ANY_TAG,
                     comms[order[k]], &status));
        CHECK_STATUS(&status, left, DATA, sizeof(int));
    }
    for (int k = 0; k < early; k++) {
        MPI(MPI_Wait(&receives[k], &status));
        CHECK_STATUS(&status, left, DATA, sizeof(int));
    }
    MPI(MPI_Waitall(count, sends, MPI_STATUSES_IGNORE));
    for (int k = 0; k < count; k++)
        CHECK_EQ(in[k], order[k] * 1000 + left);
}

static void many_at_once(int turn)
{
    static MPI_Comm comms[MANY];
    static int order[MANY];
    for (int i = 0; i < MANY; i++) {
        doing("dup of many", i);
        order[i] = i;
        MPI(MPI_Comm_dup(i == 0 || i % 3 == turn ? MPI_COMM_WORLD : comms[i - 1], &comms[i]));
    }
    doing("messages on all", turn);
    cross_traffic(comms, order, MANY);
    for (int i = 0; i < MANY; i++) {
        int mine = check_rank + i, sum = 0;
        doing("Allreduce on all", i);
        MPI(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comms[i]));
        CHECK_EQ(sum, check_size * (check_size - 1) / 2 + check_size * i);
    }

    /* Freed in another order than made, a part at a time, with messages on the rest. */
    for (int i = 0; i < MANY; i++)
        order[i] = (i * (turn ? 77 : 299) + 150) % MANY;
    for (int i = 0; i < MANY; i++) {
        doing("freeing", i);
        if (i % 50 == 49)
            cross_traffic(comms, order + i, MANY - i);
        MPI(MPI_Comm_free(&comms[order[i]]));
        CHECK(comms[order[i]] == MPI_COMM_NULL);
    }
}

/* A communicator's id may be given out again as soon as it is freed. */
static void used_again(void)
{
    enum { TIMES = 200 };
    int right = (check_rank + 1) % check_size, left = (check_rank + check_size - 1) % check_size;
    for (int i = 0; i < TIMES; i++) {
        MPI_Comm comm;
        MPI_Status status;
        int out = i * 100 + check_rank, in = -1;
        doing("dup, message, free", i);
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        MPI(MPI_Sendrecv(&out, 1, MPI_INT, right, i % 2, &in, 1, MPI_INT, MPI_ANY_SOURCE,
                         MPI_ANY_TAG, comm, &status));
        CHECK_STATUS(&status, left, i % 2, sizeof(int));
        CHECK_EQ(in, i * 100 + left);
        MPI(MPI_Comm_free(&comm));
    }
}

/* Several communicators in the making at once. */
static void nonblocking_dup(void)
{
    enum { COUNT = 5 };
    MPI_Comm comms[COUNT];
    MPI_Request requests[COUNT];
    int order[COUNT];
    for (int i = 0; i < COUNT; i++) {
        doing("Comm_idup", i);
        order[i] = COUNT - 1 - i;
        MPI(MPI_Comm_idup(MPI_COMM_WORLD, &comms[i], &requests[i]));
    }
    MPI(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
    cross_traffic(comms, order, COUNT);
    for (int i = 0; i < COUNT; i++)
        MPI(MPI_Comm_free(&comms[i]));
}

static void reordered_ranks(void)
{
    static const size_t lengths[] = { 0, 4, 300, 70000 };
    int reversed[MAX_RANKS], rotated[MAX_RANKS], parity[MAX_RANKS], members = 0;
    MPI_Comm back, around, half, none, nested;
    for (int i = 0; i < check_size; i++) {
        reversed[i] = check_size - 1 - i;
        rotated[i] = (i + 1) % check_size;
        if (reversed[i] % 2 == check_rank % 2)
            parity[members++] = reversed[i];
    }
    doing("Comm_split, reordered", 0);
    MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -check_rank, &back));
    MPI(MPI_Comm_split(MPI_COMM_WORLD, 3, (check_rank + check_size - 1) % check_size, &around));
    MPI(MPI_Comm_split(MPI_COMM_WORLD, check_rank % 2, check_size - check_rank, &half));
    for (int l = 0; l < 4; l++) {
        doing("messages by new ranks", (long long)lengths[l]);
        everybody_to_everybody(back, reversed, lengths[l], 1);
        everybody_to_everybody(around, rotated, lengths[l], 1);
        everybody_to_everybody(half, parity, lengths[l], 1);
    }

    doing("split of a split", 0);
    MPI(MPI_Comm_split(back, 0, check_rank, &nested));
    for (int i = 0; i < check_size; i++)
        rotated[i] = i;
    everybody_to_everybody(nested, rotated, 33, 1);
    MPI(MPI_Comm_split(around, check_rank == 0 ? MPI_UNDEFINED : 1, 0, &none));
    CHECK_EQ(none == MPI_COMM_NULL, check_rank == 0);
    if (none != MPI_COMM_NULL)
        MPI(MPI_Comm_free(&none));
    MPI(MPI_Comm_free(&nested));
    MPI(MPI_Comm_free(&back));
    MPI(MPI_Comm_free(&around));
    MPI(MPI_Comm_free(&half));
}

/* Only the members take part in MPI_Comm_create_group; everybody does in MPI_Comm_create. */
static void from_groups(void)
{
    int reversed[MAX_RANKS], others[MAX_RANKS], members = 0, result;
    MPI_Group world, group;
    MPI_Comm comm, same;
    MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int i = 0; i < check_size; i++) {
        reversed[i] = check_size - 1 - i;
        if (reversed[i] != 0)
            others[members++] = reversed[i];
    }

    doing("Comm_create_group of all", 0);
    MPI(MPI_Group_incl(world, check_size, reversed, &group));
    MPI(MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, &comm));
    everybody_to_everybody(comm, reversed, 100, 2);
    MPI(MPI_Comm_create(MPI_COMM_WORLD, group, &same));
    MPI(MPI_Comm_compare(comm, same, &result));
    CHECK_EQ(result, MPI_CONGRUENT);
    everybody_to_everybody(same, reversed, 2000, 2);
    MPI(MPI_Comm_free(&same));
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Group_free(&group));

    doing("Comm_create_group without rank 0", 0);
    MPI(MPI_Group_incl(world, members, others, &group));
    if (check_rank != 0) {
        for (int round = 0; round < 10; round++) {
            MPI(MPI_Comm_create_group(MPI_COMM_WORLD, group, round, &comm));
            everybody_to_everybody(comm, others, 100, 2);
            MPI(MPI_Comm_free(&comm));
        }
    }
    MPI(MPI_Comm_create(MPI_COMM_WORLD, group, &comm));
    CHECK_EQ(comm == MPI_COMM_NULL, check_rank == 0);
    if (comm != MPI_COMM_NULL) {
        everybody_to_everybody(comm, others, 500, 2);
        MPI(MPI_Comm_free(&comm));
    }
    MPI(MPI_Group_free(&group));
    MPI(MPI_Group_free(&world));
}

/* A grid, its edges open or joined: shifts and neighbourhood collectives. */
static void cartesian(int periodic, int reorder)
{
    enum { BYTES = 900 };
    static unsigned char out[4 * BYTES], in[4 * BYTES];
    int dims[2] = { 0, 0 }, periods[2] = { periodic, 0 }, coords[2], me, keep[2] = { 0, 1 };
    int neighbours[4], length, row_rank;
    MPI_Comm grid, row;
    MPI_Status status;
    doing("Cartesian grid", periodic);
    MPI(MPI_Dims_create(check_size, 2, dims));
    CHECK_EQ(dims[0] * dims[1], check_size);
    MPI(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, reorder, &grid));
    MPI(MPI_Comm_rank(grid, &me));
    MPI(MPI_Cart_coords(grid, me, 2, coords));
    for (int d = 0; d < 2; d++)
        MPI(MPI_Cart_shift(grid, d, 1, &neighbours[2 * d], &neighbours[2 * d + 1]));

    for (int d = 0; d < 4; d++) {
        int to = neighbours[d], from = neighbours[d ^ 1];
        fill(out, BYTES, seed_of(me, d, BYTES));
        MPI(MPI_Sendrecv(out, BYTES, MPI_BYTE, to, d, in, BYTES, MPI_BYTE, from, d, grid,
                         &status));
        CHECK_STATUS(&status, from, from == MPI_PROC_NULL ? MPI_ANY_TAG : d,
                     from == MPI_PROC_NULL ? 0 : BYTES);
        if (from != MPI_PROC_NULL)
            VERIFY(in, BYTES, seed_of(from, d, BYTES));
    }

    doing("Neighbor_allgather", 0);
    fill(out, BYTES, seed_of(me, 9, BYTES));
    MPI(MPI_Neighbor_allgather(out, BYTES, MPI_BYTE, in, BYTES, MPI_BYTE, grid));
    for (int d = 0; d < 4; d++)
        if (neighbours[d] != MPI_PROC_NULL)
            VERIFY(in + d * BYTES, BYTES, seed_of(neighbours[d], 9, BYTES));

    /* In a joined dimension of 2 both neighbours are one rank, and the standard leaves open
     * which of its two blocks is which. */
    doing("Neighbor_alltoall", 0);
    for (int d = 0; d < 4; d++)
        fill(out + d * BYTES, BYTES, seed_of(me, d, BYTES));
    if (!periodic || dims[0] > 2) {
        MPI(MPI_Neighbor_alltoall(out, BYTES, MPI_BYTE, in, BYTES, MPI_BYTE, grid));
        for (int d = 0; d < 4; d++)
            if (neighbours[d] != MPI_PROC_NULL)
                VERIFY(in + d * BYTES, BYTES, seed_of(neighbours[d], d ^ 1, BYTES));
    }

    doing("rows of the grid", 0);
    MPI(MPI_Cart_sub(grid, keep, &row));
    MPI(MPI_Comm_size(row, &length));
    MPI(MPI_Comm_rank(row, &row_rank));
    CHECK_EQ(length, dims[1]);
    CHECK_EQ(row_rank, coords[1]);
    int sum = 0, mine = me;
    MPI(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, row));
    int want = 0;
    for (int c = 0; c < length; c++) {
        int at[2] = { coords[0], c }, rank;
        MPI(MPI_Cart_rank(grid, at, &rank));
        want += rank;
    }
    CHECK_EQ(sum, want);
    MPI(MPI_Comm_free(&row));
    MPI(MPI_Comm_free(&grid));
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "comms", MPI_THREAD_SINGLE, 2);
    if (!CHECK(check_size <= MAX_RANKS))
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int turn = 0; turn < 2; turn++)
        many_at_once(turn);
    used_again();
    nonblocking_dup();
    reordered_ranks();
    from_groups();
    for (int i = 0; i < 4; i++)
        cartesian(i & 1, i >> 1);
    return check_finish();
}
