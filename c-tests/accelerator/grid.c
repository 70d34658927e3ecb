/* One cell after the other of the grid of transfers: what is done, where the buffers of both sides lie, and how their
 * elements do. Says `cell OPERATION, LAYOUT: FROM to TO` for each that is right.
 *
 *     grid messages|collectives|reductions|windows [NUMBERS]     of NUMBERS elements the derived types take every third */
#include "cuda.h"

static const char *what;

enum { STRIDE = 3, COUNTS = 4 };
static int numbers_all = 40000;
static int counts[COUNTS] = {1, 13, 900};

/* Elements one after the other, or every third. */
struct layout {
    const char *name;
    int stride;
};
static const struct layout layouts[] = {{"contiguous", 1}, {"derived", STRIDE}};

struct side {
    struct buffer buffer;
    const struct layout *layout;
    /* Whether what lies between the elements is -1. */
    bool has_gaps;
};

static int value(int rank, int index) { return rank * 1000003 + index * 7; }

static void side_fill(struct side *side, int rank)
{
    int *numbers = malloc((size_t)numbers_all * sizeof *numbers);
    side->has_gaps = rank < 0 && side->layout->stride > 1;
    for (int index = 0; index < numbers_all; index++) numbers[index] = rank < 0 ? -1 : value(rank, index / side->layout->stride);
    buffer_write(&side->buffer, 0, numbers, (size_t)numbers_all * sizeof *numbers);
    free(numbers);
}

/* Whether the elements from a first one on are those, and between them nothing was touched. */
static void side_holds(const struct side *side, int first, int count, int (*wanted)(int, int), int rank)
{
    int *numbers = malloc((size_t)numbers_all * sizeof *numbers);
    buffer_read(&side->buffer, 0, numbers, (size_t)numbers_all * sizeof *numbers);
    for (int index = 0; index < count; index++) {
        int place = (first + index) * side->layout->stride;
        if (numbers[place] != wanted(rank, index)) {
            check_report(__FILE__, __LINE__, what, numbers[place], wanted(rank, index));
            break;
        }
        if (side->has_gaps && index < count - 1 && numbers[place + 1] != -1) {
            check_report(__FILE__, __LINE__, "a gap", numbers[place + 1], -1);
            break;
        }
    }
    free(numbers);
}

static MPI_Datatype type_of(const struct layout *layout, int count)
{
    MPI_Datatype type;
    MPI(MPI_Type_vector(count, 1, layout->stride, MPI_INT, &type));
    MPI(MPI_Type_commit(&type));
    return type;
}

static void messages(struct side *from, struct side *to)
{
    for (int which = 0; which < COUNTS; which++) {
        MPI_Datatype type = type_of(from->layout, counts[which]);
        for (int way = 0; way < 4; way++) {
            MPI_Request request = MPI_REQUEST_NULL;
            side_fill(from, check_rank);
            side_fill(to, -1);
            if (check_rank == 0) {
                if (way == 0) MPI(MPI_Send(from->buffer.start, 1, type, 1, 1, MPI_COMM_WORLD));
                if (way == 1) MPI(MPI_Ssend(from->buffer.start, 1, type, 1, 1, MPI_COMM_WORLD));
                if (way == 2) MPI(MPI_Isend(from->buffer.start, 1, type, 1, 1, MPI_COMM_WORLD, &request));
                if (way == 3) {
                    int room;
                    MPI(MPI_Pack_size(1, type, MPI_COMM_WORLD, &room));
                    char *memory = malloc((size_t)room + MPI_BSEND_OVERHEAD);
                    MPI(MPI_Buffer_attach(memory, room + MPI_BSEND_OVERHEAD));
                    MPI(MPI_Bsend(from->buffer.start, 1, type, 1, 1, MPI_COMM_WORLD));
                    MPI(MPI_Buffer_detach(&memory, &room));
                    free(memory);
                }
                MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
            } else if (check_rank == 1) {
                MPI(MPI_Recv(to->buffer.start, 1, type, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                side_holds(to, 0, counts[which], value, 0);
            }
        }
        /* To itself. */
        side_fill(from, check_rank);
        side_fill(to, -1);
        MPI(MPI_Sendrecv(from->buffer.start, 1, type, check_rank, 2, to->buffer.start, 1, type, check_rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        side_holds(to, 0, counts[which], value, check_rank);
        MPI(MPI_Type_free(&type));
    }
}

static void collectives(struct side *from, struct side *to)
{
    for (int which = 0; which < COUNTS; which++) {
        int count = counts[which] / check_size + 1;
        MPI_Datatype type = type_of(from->layout, count), element;
        MPI(MPI_Type_create_resized(type, 0, (MPI_Aint)sizeof(int) * count * from->layout->stride, &element));
        MPI(MPI_Type_commit(&element));
        side_fill(from, check_rank);
        side_fill(to, -1);
        MPI(MPI_Allgather(from->buffer.start, 1, element, to->buffer.start, 1, element, MPI_COMM_WORLD));
        for (int rank = 0; rank < check_size; rank++) side_holds(to, rank * count, count, value, rank);
        side_fill(to, -1);
        MPI(MPI_Gather(from->buffer.start, 1, element, to->buffer.start, 1, element, 0, MPI_COMM_WORLD));
        for (int rank = 0; check_rank == 0 && rank < check_size; rank++) side_holds(to, rank * count, count, value, rank);
        MPI(MPI_Scatter(to->buffer.start, 1, element, from->buffer.start, 1, element, 0, MPI_COMM_WORLD));
        side_holds(from, 0, count, value, check_rank);
        struct side *both = check_rank == 0 ? from : to;
        MPI(MPI_Bcast(both->buffer.start, 1, element, 0, MPI_COMM_WORLD));
        side_holds(both, 0, count, value, 0);
        side_fill(from, check_rank);
        side_fill(to, -1);
        MPI_Request request;
        MPI(MPI_Iallgather(from->buffer.start, 1, element, to->buffer.start, 1, element, MPI_COMM_WORLD, &request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int rank = 0; rank < check_size; rank++) side_holds(to, rank * count, count, value, rank);
        MPI(MPI_Type_free(&element));
        MPI(MPI_Type_free(&type));
    }
}

static int sum(int rank, int index)
{
    (void)rank;
    int all = 0;
    for (int other = 0; other < check_size; other++) all += value(other, index);
    return all;
}

static void reductions(struct side *from, struct side *to)
{
    for (int which = 0; which < COUNTS; which++) {
        int count = counts[which];
        side_fill(from, check_rank);
        side_fill(to, -1);
        MPI(MPI_Allreduce(from->buffer.start, to->buffer.start, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        side_holds(to, 0, count, sum, -1);
        side_fill(to, -1);
        MPI(MPI_Reduce(from->buffer.start, to->buffer.start, count, MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD));
        if (check_rank == 1) side_holds(to, 0, count, sum, -1);
        side_fill(to, check_rank);
        MPI_Request request;
        MPI(MPI_Iallreduce(MPI_IN_PLACE, to->buffer.start, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        side_holds(to, 0, count, sum, -1);
    }
}

static int doubled(int rank, int index) { return 2 * value(rank, index); }

/* From the buffers of one process to the window of the other, and back. */
static void windows(struct side *from, struct side *to)
{
    MPI_Win window;
    int peer = 1 - check_rank, number = 0;
    MPI(MPI_Win_create(to->buffer.start, (size_t)numbers_all * sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    for (int which = 0; which < COUNTS; which++) {
        int count = counts[which];
        MPI_Datatype type = type_of(from->layout, count);
        side_fill(from, check_rank);
        side_fill(to, -1);
        MPI(MPI_Win_fence(0, window));
        MPI(MPI_Put(from->buffer.start, 1, type, peer, 0, 1, type, window));
        MPI(MPI_Win_fence(0, window));
        side_holds(to, 0, count, value, peer);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, window));
        MPI(MPI_Accumulate(from->buffer.start, 1, type, peer, 0, 1, type, MPI_SUM, window));
        MPI(MPI_Win_unlock(peer, window));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        side_holds(to, 0, count, doubled, peer);
        side_fill(from, -1);
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, window));
        MPI(MPI_Get(from->buffer.start, 1, type, peer, 0, 1, type, window));
        MPI(MPI_Win_unlock(peer, window));
        side_holds(from, 0, count, doubled, check_rank);
        MPI(MPI_Type_free(&type));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    /* Of one number: what was there, and the next. */
    number = 5;
    buffer_write(&to->buffer, 0, &number, sizeof number);
    buffer_write(&from->buffer, 0, &number, sizeof number);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, window));
    MPI(MPI_Fetch_and_op(from->buffer.start, from->buffer.start + 64, MPI_INT, peer, 0, MPI_SUM, window));
    MPI(MPI_Win_flush(peer, window));
    buffer_read(&from->buffer, 64, &number, sizeof number);
    CHECK_EQ(number, 5);
    number = 10;
    buffer_write(&from->buffer, 128, &number, sizeof number);
    MPI(MPI_Compare_and_swap(from->buffer.start, from->buffer.start + 128, from->buffer.start + 64, MPI_INT, peer, 0, window));
    MPI(MPI_Win_unlock_all(window));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    buffer_read(&to->buffer, 0, &number, sizeof number);
    CHECK_EQ(number, 5);
    MPI(MPI_Win_free(&window));
}

int main(int argc, char **argv)
{
    static const enum kind pairs[][2] = {{HEAP, MAPPED}, {HEAP, FIRST}, {FIRST, HEAP}, {FIRST, FIRST}, {FIRST, SECOND}, {POOL, FIRST}, {MANAGED, FIRST}};
    check_start(&argc, &argv, "grid", MPI_THREAD_SINGLE, 2);
    what = argc > 1 ? argv[1] : "";
    if (argc > 2) numbers_all = atoi(argv[2]);
    counts[COUNTS - 1] = numbers_all / STRIDE;
    cuda_begin();
    for (size_t layout = 0; layout < sizeof layouts / sizeof *layouts; layout++) {
        if (layout == 1 && strcmp(what, "reductions") == 0) break;
        for (size_t pair = 0; pair < sizeof pairs / sizeof *pairs; pair++) {
            struct side from = {buffer_new(pairs[pair][0], (size_t)numbers_all * sizeof(int)), &layouts[layout], false};
            struct side to = {buffer_new(pairs[pair][1], (size_t)numbers_all * sizeof(int)), &layouts[layout], false};
            int before = check_failures, failures = 0, all = 0;
            doing(what, (long long)(layout * 100 + pair));
            if (strcmp(what, "messages") == 0) messages(&from, &to);
            if (strcmp(what, "collectives") == 0) collectives(&from, &to);
            if (strcmp(what, "reductions") == 0) reductions(&from, &to);
            if (strcmp(what, "windows") == 0) windows(&from, &to);
            failures = check_failures - before;
            MPI(MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
            if (check_rank == 0 && all == 0) {
                printf("cell %s, %s: %s to %s\n", what, layouts[layout].name, kind_names[pairs[pair][0]], kind_names[pairs[pair][1]]);
                fflush(stdout);
            }
            buffer_free(&from.buffer);
            buffer_free(&to.buffer);
        }
    }
    int status = check_finish();
    cuda_end();
    return status;
}
