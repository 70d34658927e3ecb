/* Reductions of buffers of all kinds: each beside the same one on plain memory.
 *
 *     reductions [LONGEST]     elements */
#include "cuda.h"

static int longest = 100000;

/* A type of number, and an operation on it. */
struct pair {
    MPI_Datatype type;
    MPI_Op op;
    const char *name;
};

/* A number with as much room behind it. */
static MPI_Datatype spaced;

/* An operation of the program's own: the processor computes. */
static void own_sum(void *source, void *target, int *count, MPI_Datatype *type)
{
    MPI_Aint lb, extent;
    MPI(MPI_Type_get_extent(*type, &lb, &extent));
    for (int index = 0; index < *count; index++)
        *(int *)((char *)target + index * extent) += *(int *)((char *)source + index * extent);
}

/* As the bindings for C++ and Java have it: Open MPI passes what they have left with it. */
static char mark[3];

static void cxx_sum(void *source, void *target, int *count, MPI_Datatype *type, void *function)
{
    CHECK(function == &mark[0]);
    own_sum(source, target, count, type);
}

static void java_sum(void *source, void *target, int *count, MPI_Datatype *type, int base, void *machine, void *object)
{
    CHECK_EQ(base, 7);
    CHECK(machine == &mark[1] && object == &mark[2]);
    own_sum(source, target, count, type);
}

/* On plain memory, and on a device's. */
static void operations_of_bindings(void)
{
    void (*set_cxx)(MPI_Op, void *), (*set_java)(MPI_Op, void *, void *, int);
    *(void **)&set_cxx = dlsym(RTLD_DEFAULT, "ompi_op_set_cxx_callback");
    *(void **)&set_java = dlsym(RTLD_DEFAULT, "ompi_op_set_java_callback");
    for (int is_java = 0; is_java < 2; is_java++) {
        MPI_Op op;
        doing("operations of bindings", is_java);
        if (is_java ? set_java == NULL : set_cxx == NULL) continue;
        MPI(MPI_Op_create((MPI_User_function *)(is_java ? (void *)java_sum : (void *)cxx_sum), 1, &op));
        if (is_java) set_java(op, &mark[1], &mark[2], 7);
        else set_cxx(op, &mark[0]);
        for (enum kind kind = HEAP; kind < KINDS; kind++) {
            struct buffer source = buffer_new(kind, 4), target = buffer_new(kind, 4);
            int two = 2, three = 3, sum = 0;
            buffer_write(&source, 0, &two, 4);
            buffer_write(&target, 0, &three, 4);
            MPI(MPI_Reduce_local(source.start, target.start, 1, MPI_INT, op));
            buffer_read(&target, 0, &sum, 4);
            CHECK_EQ(sum, 5);
            buffer_free(&source);
            buffer_free(&target);
        }
        MPI(MPI_Op_free(&op));
    }
}

/* Small numbers, so that no sum is rounded and none is too great. */
static void numbers(void *memory, MPI_Datatype type, int count, int seed)
{
    for (int index = 0; index < count; index++) {
        int value = (index * 7 + seed * 13) % 11 - 3;
        if (type == MPI_INT) ((int *)memory)[index] = value;
        if (type == spaced) ((int *)memory)[2 * index] = value;
        if (type == MPI_BYTE) ((unsigned char *)memory)[index] = (unsigned char)(value * 5);
        if (type == MPI_FLOAT) ((float *)memory)[index] = (float)value;
        if (type == MPI_DOUBLE) ((double *)memory)[index] = value;
        if (type == MPI_LONG_LONG) ((long long *)memory)[index] = value;
        if (type == MPI_DOUBLE_INT) {
            struct { double value; int at; } *both = memory;
            both[index].value = value;
            both[index].at = index + seed;
        }
    }
}

enum how { ALLREDUCE, REDUCE, SCATTER_BLOCK, SCATTER, SCAN, EXSCAN, IALLREDUCE, IREDUCE, ISCAN, ISCATTER_BLOCK, PERSISTENT, LOCAL, HOWS };
static const char *const how_names[HOWS] = {"allreduce", "reduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan",
    "iallreduce", "ireduce", "iscan", "ireduce_scatter_block", "allreduce_init", "reduce_local"};

static bool may_be_in_place(enum how how) { return how != REDUCE && how != IREDUCE && how != LOCAL; }

static void reduce(enum how how, const void *from, void *to, int count, const struct pair *pair)
{
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Request request = MPI_REQUEST_NULL;
    int counts[64];
    for (int rank = 0; rank < check_size; rank++) counts[rank] = count;
    switch (how) {
    case ALLREDUCE: MPI(MPI_Allreduce(from, to, count, pair->type, pair->op, world)); break;
    case REDUCE: MPI(MPI_Reduce(from, to, count, pair->type, pair->op, count % check_size, world)); break;
    case SCATTER_BLOCK: MPI(MPI_Reduce_scatter_block(from, to, count, pair->type, pair->op, world)); break;
    case SCATTER: MPI(MPI_Reduce_scatter(from, to, counts, pair->type, pair->op, world)); break;
    case SCAN: MPI(MPI_Scan(from, to, count, pair->type, pair->op, world)); break;
    case EXSCAN: MPI(MPI_Exscan(from, to, count, pair->type, pair->op, world)); break;
    case IALLREDUCE: MPI(MPI_Iallreduce(from, to, count, pair->type, pair->op, world, &request)); break;
    case IREDUCE: MPI(MPI_Ireduce(from, to, count, pair->type, pair->op, count % check_size, world, &request)); break;
    case ISCAN: MPI(MPI_Iscan(from, to, count, pair->type, pair->op, world, &request)); break;
    case ISCATTER_BLOCK: MPI(MPI_Ireduce_scatter_block(from, to, count, pair->type, pair->op, world, &request)); break;
#if HAS_ACCELERATORS
    case PERSISTENT:
        MPI(MPI_Allreduce_init(from, to, count, pair->type, pair->op, world, MPI_INFO_NULL, &request));
        MPI(MPI_Start(&request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        MPI(MPI_Request_free(&request));
        break;
#endif
    default: MPI(MPI_Reduce_local(from, to, count, pair->type, pair->op));
    }
    if (request != MPI_REQUEST_NULL) MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* A reduction of buffers of two kinds, and the same of plain memory. */
static void one(enum how how, const struct pair *pair, int count, enum kind from, enum kind to, bool in_place)
{
    bool scatters = how == SCATTER_BLOCK || how == SCATTER || how == ISCATTER_BLOCK;
    int given = scatters ? count * check_size : count, taken = in_place ? given : count;
    MPI_Aint lb, extent;
    MPI(MPI_Type_get_extent(pair->type, &lb, &extent));
    size_t room = (size_t)given * (size_t)extent;
    char *input = calloc(1, room), *output = calloc(1, room), *seen = calloc(1, room);
    struct buffer source = buffer_new(from, room), target = buffer_new(to, room);
    doing(how_names[how], (long long)count * 1000 + from * 100 + to * 10 + in_place);
    numbers(input, pair->type, given, check_rank);
    numbers(output, pair->type, given, check_rank + 50);
    buffer_write(&source, 0, input, room);
    buffer_write(&target, 0, in_place ? input : output, room);
    if (in_place) memcpy(output, input, room);
    reduce(how, in_place ? MPI_IN_PLACE : source.start, target.start, count, pair);
    reduce(how, in_place ? MPI_IN_PLACE : input, output, count, pair);
    buffer_read(&target, 0, seen, room);
    /* In place, what is not the result of a scatter is anything; the first rank of exscan has none. */
    int compared = scatters ? count : taken;
    if (how == EXSCAN && check_rank == 0) compared = 0;
    if (how == LOCAL && in_place) compared = 0;
    if (memcmp(seen, output, (size_t)compared * (size_t)extent) != 0)
        check_report(__FILE__, __LINE__, pair->name, from * 10 + to, count);
    buffer_free(&source);
    buffer_free(&target);
    free(input);
    free(output);
    free(seen);
}

int main(int argc, char **argv)
{
    if (argc > 1) longest = atoi(argv[1]);
    check_start(&argc, &argv, "reductions", MPI_THREAD_SINGLE, 2);
    cuda_begin();
    MPI_Op own;
    MPI(MPI_Op_create(own_sum, 1, &own));
    MPI(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spaced));
    MPI(MPI_Type_commit(&spaced));
    const struct pair pairs[] = {
        {MPI_INT, MPI_SUM, "int sum"}, {MPI_DOUBLE, MPI_SUM, "double sum"}, {MPI_FLOAT, MPI_MAX, "float max"},
        {MPI_BYTE, MPI_BXOR, "byte bxor"}, {MPI_LONG_LONG, MPI_MIN, "long long min"}, {MPI_DOUBLE_INT, MPI_MAXLOC, "double_int maxloc"},
        {MPI_INT, MPI_LAND, "int land"}, {MPI_DOUBLE, MPI_PROD, "double prod"},
        {MPI_INT, own, "int, own sum"}, {spaced, own, "int and a gap, own sum"},
    };
    const int kinds = (int)(sizeof pairs / sizeof *pairs);
    int turn = 0;
    for (int count = 1; count <= longest; count = count * 40 + 3) {
        for (enum how how = 0; how < HOWS; how++) {
            if (how == PERSISTENT && !HAS_ACCELERATORS) continue;
            for (int combination = 0; combination < KINDS * KINDS; combination++, turn++) {
                /* Each rank has other kinds, and there is a device in all. */
                enum kind from = (enum kind)((combination % KINDS + check_rank) % KINDS), to = (enum kind)((combination / KINDS + check_rank * 3) % KINDS);
                if (count > 1000 && combination % (count > 10000 ? 24 : 5) != 0) continue;
                one(how, &pairs[turn % kinds], count, from, to, may_be_in_place(how) && turn % 3 == 0);
            }
        }
    }
    operations_of_bindings();
    MPI(MPI_Type_free(&spaced));
    MPI(MPI_Op_free(&own));
    int status = check_finish();
    cuda_end();
    return status;
}
