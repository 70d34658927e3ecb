/* Collectives that move data, datatypes and windows, on buffers of all kinds.
 *
 *     collectives [LONGEST] */
#include "cuda.h"

static size_t longest = 1 << 20;

/* Kinds differ from rank to rank. */
static enum kind mine(int turn) { return (enum kind)((turn + check_rank * 2) % KINDS); }

static void moves(size_t len, int turn)
{
    size_t all = len * (size_t)check_size;
    struct buffer one = buffer_new(mine(turn), len), every = buffer_new(mine(turn + 1), all), third = buffer_new(mine(turn + 3), all);
    unsigned seed = (unsigned)(turn * 100 + (int)len);
    int count = (int)len;
    MPI_Request request;

    for (int root = 0; root < check_size; root++) {
        doing("bcast", (long long)len);
        buffer_fill(&one, 0, len, check_rank == root ? seed + 50 : 1);
        MPI(MPI_Bcast(one.start, count, MPI_BYTE, root, MPI_COMM_WORLD));
        buffer_holds(&one, 0, len, seed + 50);
        buffer_fill(&one, 0, len, check_rank == root ? seed + 51 : 1);
        MPI(MPI_Ibcast(one.start, count, MPI_BYTE, root, MPI_COMM_WORLD, &request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        buffer_holds(&one, 0, len, seed + 51);

        doing("gather", (long long)len);
        buffer_fill(&one, 0, len, seed + (unsigned)check_rank);
        buffer_fill(&every, 0, all, 2);
        MPI(MPI_Gather(one.start, count, MPI_BYTE, every.start, count, MPI_BYTE, root, MPI_COMM_WORLD));
        if (check_rank == root)
            for (int rank = 0; rank < check_size; rank++) buffer_holds(&every, len * (size_t)rank, len, seed + (unsigned)rank);
        doing("scatter", (long long)len);
        buffer_fill(&one, 0, len, 3);
        MPI(MPI_Scatter(every.start, count, MPI_BYTE, one.start, count, MPI_BYTE, root, MPI_COMM_WORLD));
        buffer_holds(&one, 0, len, seed + (unsigned)check_rank);
    }

    doing("allgather", (long long)len);
    MPI(MPI_Allgather(one.start, count, MPI_BYTE, every.start, count, MPI_BYTE, MPI_COMM_WORLD));
    for (int rank = 0; rank < check_size; rank++) buffer_holds(&every, len * (size_t)rank, len, seed + (unsigned)rank);
    doing("allgather in place", (long long)len);
    buffer_fill(&every, 0, all, 4);
    buffer_fill(&every, len * (size_t)check_rank, len, seed + 9 + (unsigned)check_rank);
    MPI(MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, every.start, count, MPI_BYTE, MPI_COMM_WORLD));
    for (int rank = 0; rank < check_size; rank++) buffer_holds(&every, len * (size_t)rank, len, seed + 9 + (unsigned)rank);
    doing("iallgather", (long long)len);
    buffer_fill(&every, 0, all, 4);
    MPI(MPI_Iallgather(one.start, count, MPI_BYTE, every.start, count, MPI_BYTE, MPI_COMM_WORLD, &request));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int rank = 0; rank < check_size; rank++) buffer_holds(&every, len * (size_t)rank, len, seed + (unsigned)rank);

    for (int way = 0; way < 3; way++) {
        int counts[64], displacements[64];
        for (int rank = 0; rank < check_size; rank++) {
            counts[rank] = count;
            displacements[rank] = rank * count;
            buffer_fill(&every, len * (size_t)rank, len, seed + 31u * (unsigned)check_rank + (unsigned)rank);
        }
        doing("alltoall", (long long)len * 10 + way);
        buffer_fill(&third, 0, all, 5);
        if (way == 0)
            MPI(MPI_Alltoall(every.start, count, MPI_BYTE, third.start, count, MPI_BYTE, MPI_COMM_WORLD));
        if (way == 1)
            MPI(MPI_Alltoallv(every.start, counts, displacements, MPI_BYTE, third.start, counts, displacements, MPI_BYTE, MPI_COMM_WORLD));
        if (way == 2) {
            MPI(MPI_Ialltoall(every.start, count, MPI_BYTE, third.start, count, MPI_BYTE, MPI_COMM_WORLD, &request));
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
        for (int rank = 0; rank < check_size; rank++)
            buffer_holds(&third, len * (size_t)rank, len, seed + 31u * (unsigned)rank + (unsigned)check_rank);
    }
    buffer_free(&one);
    buffer_free(&every);
    buffer_free(&third);
}

/* Derived datatypes on both sides: what lies in the gaps stays. */
static void datatypes(enum kind from, enum kind to, int blocks)
{
    MPI_Datatype vector, pair, indexed, resized;
    int lengths[] = {3, 1, 5, 2}, places[] = {0, 4, 9, 20};
    MPI(MPI_Type_vector(blocks, 3, 7, MPI_INT, &vector));
    MPI(MPI_Type_indexed(4, lengths, places, MPI_DOUBLE, &indexed));
    MPI(MPI_Type_create_resized(indexed, 0, 30 * sizeof(double), &resized));
    MPI(MPI_Type_contiguous(blocks / 4 + 1, resized, &pair));
    MPI_Datatype types[] = {vector, pair};
    for (int which = 0; which < 2; which++) {
        MPI_Aint lb, extent;
        int size, peer = 1 - check_rank;
        MPI(MPI_Type_commit(&types[which]));
        MPI(MPI_Type_get_extent(types[which], &lb, &extent));
        MPI(MPI_Type_size(types[which], &size));
        struct buffer source = buffer_new(from, (size_t)extent), target = buffer_new(to, (size_t)extent);
        doing("datatype", (long long)blocks * 1000 + which * 100 + (int)from * 10 + (int)to);
        buffer_fill(&source, 0, (size_t)extent, 11);
        buffer_fill(&target, 0, (size_t)extent, 12);
        if (check_rank == 0)
            MPI(MPI_Send(source.start, 1, types[which], peer, 1, MPI_COMM_WORLD));
        else
            MPI(MPI_Recv(target.start, 1, types[which], peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (check_rank == 1) {
            unsigned char *expected = malloc((size_t)extent), *packed = malloc((size_t)size), *all = malloc((size_t)extent);
            int at = 0;
            fill(all, (size_t)extent, 11);
            MPI(MPI_Pack(all, 1, types[which], packed, size, &at, MPI_COMM_SELF));
            fill(expected, (size_t)extent, 12);
            at = 0;
            MPI(MPI_Unpack(packed, size, &at, expected, 1, types[which], MPI_COMM_SELF));
            buffer_read(&target, 0, all, (size_t)extent);
            CHECK(memcmp(all, expected, (size_t)extent) == 0);
            /* Pack and unpack of what is on the device. */
            struct buffer flat = buffer_new(to, (size_t)size);
            at = 0;
            MPI(MPI_Pack(target.start, 1, types[which], flat.start, size, &at, MPI_COMM_SELF));
            buffer_read(&flat, 0, all, (size_t)size);
            CHECK(memcmp(all, packed, (size_t)size) == 0);
            buffer_free(&flat);
            free(expected);
            free(packed);
            free(all);
        }
        buffer_free(&source);
        buffer_free(&target);
        MPI(MPI_Type_free(&types[which]));
    }
    MPI(MPI_Type_free(&resized));
    MPI(MPI_Type_free(&indexed));
}

/* Windows on memory of all kinds. */
static void windows(enum kind window_kind, enum kind kind, size_t len)
{
    struct buffer memory = buffer_new(window_kind, 2 * len), local = buffer_new(kind, len);
    int peer = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
    MPI_Win window;
    doing("window", (long long)(len * 100 + window_kind * 10 + kind));
    buffer_fill(&memory, 0, 2 * len, 20 + (unsigned)check_rank);
    MPI(MPI_Win_create(memory.start, (MPI_Aint)(2 * len), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    buffer_fill(&local, 0, len, 40 + (unsigned)check_rank);
    MPI(MPI_Win_fence(0, window));
    MPI(MPI_Put(local.start, (int)len, MPI_BYTE, peer, (MPI_Aint)len, (int)len, MPI_BYTE, window));
    MPI(MPI_Win_fence(0, window));
    buffer_holds(&memory, len, len, 40 + (unsigned)before);
    buffer_fill(&local, 0, len, 1);
    MPI(MPI_Win_fence(0, window));
    MPI(MPI_Get(local.start, (int)len, MPI_BYTE, peer, (MPI_Aint)len, (int)len, MPI_BYTE, window));
    MPI(MPI_Win_fence(0, window));
    buffer_holds(&local, 0, len, 40 + (unsigned)check_rank);
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, window));
    MPI(MPI_Get(local.start, (int)len, MPI_BYTE, peer, 0, (int)len, MPI_BYTE, window));
    MPI(MPI_Win_unlock(peer, window));
    buffer_holds(&local, 0, len < 2 * len ? len : 0, 20 + (unsigned)peer);
    MPI(MPI_Win_free(&window));
    buffer_free(&memory);
    buffer_free(&local);
}

int main(int argc, char **argv)
{
    bool with_windows = argc > 2 && strcmp(argv[2], "windows") == 0;
    if (argc > 1) longest = strtoul(argv[1], NULL, 0);
    check_start(&argc, &argv, "collectives", MPI_THREAD_SINGLE, 2);
    cuda_begin();
    int turn = 0;
    for (size_t len = 1; len <= longest; len = len * 30 + 5)
        for (int times = 0; times < KINDS; times++) moves(len, turn++);
    if (check_rank < 2) {
        for (enum kind from = 0; from < KINDS; from++) {
            for (enum kind to = 0; to < KINDS; to++) {
                datatypes(from, to, 1);
                datatypes(from, to, 40);
                datatypes(from, to, 9000);
            }
        }
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (with_windows) {
        for (enum kind window = 0; window < KINDS; window++)
            for (enum kind kind = 0; kind < KINDS; kind++)
                for (size_t len = 8; len <= longest; len = len * 100 + 5) windows(window, kind, len);
    }
    int status = check_finish();
    cuda_end();
    return status;
}
