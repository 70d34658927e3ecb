/* Messages whose fragments end inside an element: elements of all sizes, sent in one run and received apart. The host
 * unpacks a part of an element in a way of its own, by bytes.
 *
 *     elements [LENGTH] */
#include "cuda.h"

enum { GAP = 64, MOST = 2 };

/* Bytes of a message, or a little less. */
static int length = 140000;

/* An element: one or two numbers, at places of their own where it is received, in one run where it is sent. */
static struct element {
    const char *name;
    MPI_Datatype received;
    int parts;
    MPI_Datatype of[MOST];
} elements[6];
enum { ELEMENTS = sizeof elements / sizeof *elements };

static void elements_make(void)
{
    MPI_Datatype apart, run;
    MPI(MPI_Type_vector(3, 1, 2, MPI_DOUBLE, &apart));
    MPI(MPI_Type_contiguous(3, MPI_DOUBLE, &run));
    elements[0] = (struct element){"double complex", MPI_C_DOUBLE_COMPLEX, 1, {MPI_C_DOUBLE_COMPLEX}};
    elements[1] = (struct element){"long double", MPI_LONG_DOUBLE, 1, {MPI_LONG_DOUBLE}};
    elements[2] = (struct element){"double and int", MPI_DOUBLE_INT, 2, {MPI_DOUBLE, MPI_INT}};
    elements[3] = (struct element){"short and int", MPI_SHORT_INT, 2, {MPI_SHORT, MPI_INT}};
    elements[4] = (struct element){"long double and int", MPI_LONG_DOUBLE_INT, 2, {MPI_LONG_DOUBLE, MPI_INT}};
    elements[5] = (struct element){"three doubles apart", apart, 1, {run}};
}

/* So many bytes, and so many elements, in one run: a fragment may end anywhere. */
static MPI_Datatype in_one_run(const struct element *element, int lead, int count)
{
    MPI_Datatype one, packed, all, run;
    int lens[] = {1, 1};
    MPI_Aint places[MOST] = {0, 0};
    int size;
    MPI(MPI_Type_size(element->of[0], &size));
    places[1] = size;
    MPI(MPI_Type_create_struct(element->parts, lens, places, (MPI_Datatype *)element->of, &one));
    MPI(MPI_Type_size(one, &size));
    MPI(MPI_Type_create_resized(one, 0, size, &packed));
    MPI(MPI_Type_contiguous(count, packed, &all));
    MPI(MPI_Type_create_struct(2, (int[]){lead, 1}, (MPI_Aint[]){0, lead}, (MPI_Datatype[]){MPI_BYTE, all}, &run));
    MPI(MPI_Type_commit(&run));
    MPI(MPI_Type_free(&one));
    MPI(MPI_Type_free(&packed));
    MPI(MPI_Type_free(&all));
    return run;
}

/* The same with a gap after the bytes, and one as long as an element after each. */
static MPI_Datatype apart(const struct element *element, int lead, int count)
{
    MPI_Datatype vector, all;
    MPI(MPI_Type_vector(count, 1, 2, element->received, &vector));
    MPI(MPI_Type_create_struct(2, (int[]){lead, 1}, (MPI_Aint[]){0, GAP}, (MPI_Datatype[]){MPI_BYTE, vector}, &all));
    MPI(MPI_Type_commit(&all));
    MPI(MPI_Type_free(&vector));
    return all;
}

/* Of the 16 bytes of a long double 10 are its value; whether the others are copied is the host's business. */
static bool is_padding(const struct element *element, MPI_Aint extent, size_t index)
{
    size_t within = (index - GAP) % (2 * (size_t)extent);
    return element->of[0] == MPI_LONG_DOUBLE && index >= GAP && within >= 10 && within < sizeof(long double);
}

/* What lies in the gaps stays. */
static void message(const struct element *element, int lead, enum kind from, enum kind to)
{
    MPI_Aint lb, extent;
    int size, count;
    MPI(MPI_Type_get_extent(element->received, &lb, &extent));
    MPI(MPI_Type_size(element->received, &size));
    count = length / size;
    MPI_Datatype sent = in_one_run(element, lead, count), received = apart(element, lead, count);
    MPI(MPI_Type_size(received, &size));
    size_t room = GAP + 2 * (size_t)count * (size_t)extent;
    struct buffer source = buffer_new(from, (size_t)size), target = buffer_new(to, room);
    buffer_fill(&source, 0, (size_t)size, 1);
    buffer_fill(&target, 0, room, 2);
    if (check_rank == 0) MPI(MPI_Send(source.start, 1, sent, 1, 1, MPI_COMM_WORLD));
    if (check_rank == 1) {
        unsigned char *wanted = malloc(room), *got = malloc(room), *packed = malloc((size_t)size);
        int at = 0;
        MPI(MPI_Recv(target.start, 1, received, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        fill(wanted, room, 2);
        fill(packed, (size_t)size, 1);
        MPI(MPI_Unpack(packed, size, &at, wanted, 1, received, MPI_COMM_SELF));
        buffer_read(&target, 0, got, room);
        for (size_t index = 0; index < room; index++) {
            if (got[index] == wanted[index] || is_padding(element, extent, index)) continue;
            check_report(__FILE__, __LINE__, "a byte", got[index], wanted[index]);
            break;
        }
        free(wanted);
        free(got);
        free(packed);
    }
    buffer_free(&source);
    buffer_free(&target);
    MPI(MPI_Type_free(&sent));
    MPI(MPI_Type_free(&received));
}

int main(int argc, char **argv)
{
    static const enum kind pairs[][2] = {{FIRST, FIRST}, {HEAP, SECOND}, {HEAP, HEAP}};
    static const int leads[] = {0, 1, 7};
    if (argc > 1) length = atoi(argv[1]);
    check_start(&argc, &argv, "elements", MPI_THREAD_SINGLE, 2);
    cuda_begin();
    elements_make();
    for (int which = 0; which < ELEMENTS; which++) {
        for (size_t lead = 0; lead < sizeof leads / sizeof *leads; lead++) {
            for (size_t pair = 0; pair < sizeof pairs / sizeof *pairs; pair++) {
                doing(elements[which].name, (long long)(lead * 10 + pair));
                message(&elements[which], leads[lead], pairs[pair][0], pairs[pair][1]);
            }
        }
    }
    MPI(MPI_Type_free(&elements[5].received));
    MPI(MPI_Type_free(&elements[5].of[0]));
    int status = check_finish();
    cuda_end();
    return status;
}
