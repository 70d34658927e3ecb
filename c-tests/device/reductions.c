/* Reductions of buffers in device memory, as accelerator.c lends it: the host's own operations in all
 * collectives that reduce, blocking and not, in place and not, with one buffer or both on the device;
 * MPI_Reduce_local. What comes out is what the same call gives in host memory, bit for bit.
 *
 * usage: reductions COMPONENT
 *
 * the path of the accelerator component that the host has loaded. */
#include <dlfcn.h>

#include "../mpi/check.h"

enum { ROOT = 1, LONGEST = 300000, WIDEST = 16 };

static struct {
    void *(*alloc)(size_t);
    void (*free)(void *);
    void (*write)(void *, const void *, size_t);
    void (*read)(void *, const void *, size_t);
} standin;

struct double_int { double value; int rank; };
struct short_int { short value; int rank; };

/* Operations and what they are tried on: of each width, of the kinds that the host has loops for. */
static const struct pair {
    const char *name;
    MPI_Op op;
    MPI_Datatype type;
    size_t size;
} pairs[] = {
    { "sum of int", MPI_SUM, MPI_INT, sizeof(int) },
    { "max of double", MPI_MAX, MPI_DOUBLE, sizeof(double) },
    { "product of float", MPI_PROD, MPI_FLOAT, sizeof(float) },
    { "min of short", MPI_MIN, MPI_SHORT, sizeof(short) },
    { "bitwise and of unsigned char", MPI_BAND, MPI_UNSIGNED_CHAR, 1 },
    { "logical or of long", MPI_LOR, MPI_LONG, sizeof(long) },
    { "sum of double complex", MPI_SUM, MPI_C_DOUBLE_COMPLEX, 2 * sizeof(double) },
    { "maxloc of double and int", MPI_MAXLOC, MPI_DOUBLE_INT, sizeof(struct double_int) },
    { "minloc of short and int", MPI_MINLOC, MPI_SHORT_INT, sizeof(struct short_int) },
};
enum { PAIRS = sizeof pairs / sizeof pairs[0] };

/* A number for each element, small enough that products and sums of all ranks are exact. */
static void number(void *to, const struct pair *pair, int count)
{
    memset(to, 0, pair->size * (size_t)count);
    for (int i = 0; i < count; i++) {
        int value = 1 + (i * 7 + check_rank * 3) % 5;
        char *at = (char *)to + (size_t)i * pair->size;
        if (pair->type == MPI_INT)
            *(int *)(void *)at = value;
        else if (pair->type == MPI_DOUBLE || pair->type == MPI_C_DOUBLE_COMPLEX)
            *(double *)(void *)at = value;
        else if (pair->type == MPI_FLOAT)
            *(float *)(void *)at = (float)value;
        else if (pair->type == MPI_SHORT)
            *(short *)(void *)at = (short)value;
        else if (pair->type == MPI_UNSIGNED_CHAR)
            *(unsigned char *)at = (unsigned char)(0xF0 | value);
        else if (pair->type == MPI_LONG)
            *(long *)(void *)at = value & 1;
        else if (pair->type == MPI_DOUBLE_INT)
            *(struct double_int *)(void *)at = (struct double_int){ value, check_rank };
        else
            *(struct short_int *)(void *)at = (struct short_int){ (short)value, check_rank };
    }
}

/* The collectives: each with as many elements a rank as it is given. */
typedef void reduction(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op);

static void allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    MPI(MPI_Allreduce(from, to, count, type, op, MPI_COMM_WORLD));
}

static void reduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    if (from == MPI_IN_PLACE && check_rank != ROOT)
        MPI(MPI_Reduce(to, NULL, count, type, op, ROOT, MPI_COMM_WORLD));
    else
        MPI(MPI_Reduce(from, to, count, type, op, ROOT, MPI_COMM_WORLD));
}

static void reduce_scatter_block(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    MPI(MPI_Reduce_scatter_block(from, to, count / check_size, type, op, MPI_COMM_WORLD));
}

static void reduce_scatter(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    int counts[64];
    for (int i = 0; i < check_size; i++)
        counts[i] = i == 0 ? count - (check_size - 1) * (count / check_size) : count / check_size;
    MPI(MPI_Reduce_scatter(from, to, counts, type, op, MPI_COMM_WORLD));
}

static void scan(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    MPI(MPI_Scan(from, to, count, type, op, MPI_COMM_WORLD));
}

static void exscan(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    MPI(MPI_Exscan(from, to, count, type, op, MPI_COMM_WORLD));
}

static void iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    MPI_Request request;
    MPI(MPI_Iallreduce(from, to, count, type, op, MPI_COMM_WORLD, &request));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void ireduce_scatter_block(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    MPI_Request request;
    MPI(MPI_Ireduce_scatter_block(from, to, count / check_size, type, op, MPI_COMM_WORLD, &request));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void iscan(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    MPI_Request request;
    MPI(MPI_Iscan(from, to, count, type, op, MPI_COMM_WORLD, &request));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* `to` begins as it is, which is the same everywhere: what the caller has put there. */
static void reduce_local(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
    MPI(MPI_Reduce_local(from, to, count, type, op));
}

static const struct {
    const char *name;
    reduction *run;
    bool has_in_place;
} reductions[] = {
    { "Allreduce", allreduce, true },
    { "Reduce", reduce, true },
    { "Reduce_scatter_block", reduce_scatter_block, true },
    { "Reduce_scatter", reduce_scatter, true },
    { "Scan", scan, true },
    { "Exscan", exscan, true },
    { "Iallreduce", iallreduce, true },
    { "Ireduce_scatter_block", ireduce_scatter_block, true },
    { "Iscan", iscan, true },
    { "Reduce_local", reduce_local, false },
};
enum { REDUCTIONS = sizeof reductions / sizeof reductions[0] };

static char *wanted, *got, *source;

static void *placed(const void *image, size_t size, bool on_device)
{
    void *made = on_device ? standin.alloc(size) : malloc(size);
    if (made == NULL)
        abort();
    if (on_device)
        standin.write(made, image, size);
    else
        memcpy(made, image, size);
    return made;
}

/* One reduction, whose buffers are on the device or not. */
static void try(int which, const struct pair *pair, int count, bool in_place, bool from_device, bool to_device)
{
    size_t size = pair->size * (size_t)count;
    char step[128];
    snprintf(step, sizeof step, "%s, %s%s, %s to %s", reductions[which].name, pair->name,
             in_place ? ", in place" : "", from_device ? "device" : "host", to_device ? "device" : "host");
    doing(step, count);

    number(source, pair, count);
    number(wanted, pair, count);
    memcpy(got, wanted, size);
    reductions[which].run(in_place ? MPI_IN_PLACE : source, wanted, count, pair->type, pair->op);

    void *from = placed(source, size, from_device), *to = placed(got, size, to_device);
    reductions[which].run(in_place ? MPI_IN_PLACE : from, to, count, pair->type, pair->op);
    if (to_device)
        standin.read(got, to, size);
    else
        memcpy(got, to, size);
    CHECK(memcmp(got, wanted, size) == 0);
    if (from_device) {
        standin.read(got, from, size);
        CHECK(memcmp(got, source, size) == 0);
    }
    from_device ? standin.free(from) : free(from);
    to_device ? standin.free(to) : free(to);
    doing("between two reductions", 0);
}

int main(int argc, char **argv)
{
    static const int counts[] = { 12, 1000, LONGEST };
    check_start(&argc, &argv, "reductions", MPI_THREAD_SINGLE, 2);
    void *component = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!CHECK(component != NULL))
        MPI_Abort(MPI_COMM_WORLD, 2);
    *(void **)&standin.alloc = dlsym(component, "standin_alloc");
    *(void **)&standin.free = dlsym(component, "standin_free");
    *(void **)&standin.write = dlsym(component, "standin_write");
    *(void **)&standin.read = dlsym(component, "standin_read");
    wanted = malloc((size_t)LONGEST * WIDEST);
    got = malloc((size_t)LONGEST * WIDEST);
    source = malloc((size_t)LONGEST * WIDEST);

    for (int which = 0; which < REDUCTIONS; which++) {
        for (int pair = 0; pair < PAIRS; pair++) {
            for (int i = 0; i < 3; i++) {
                if (counts[i] == LONGEST && pair % 7 != 0)
                    continue;
                try(which, &pairs[pair], counts[i], false, true, true);
                try(which, &pairs[pair], counts[i], false, false, true);
                try(which, &pairs[pair], counts[i], false, true, false);
                if (reductions[which].has_in_place)
                    try(which, &pairs[pair], counts[i], true, false, true);
            }
        }
    }
    return check_finish();
}
