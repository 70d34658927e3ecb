/* Random traffic between all pairs of ranks, everybody to themselves too: modes, sizes,
 * datatypes and ways of receiving are drawn from a seeded generator that both sides know, so
 * that every byte can be checked. Memory may not grow with the number of messages. Meant for
 * 4 ranks, works for any number from 1.
 *
 * usage: mixed [SEED] [small]     "small" stops at 4 KiB, for slow providers. */
#include "check.h"

enum { MESSAGES = 3000, BATCH = 25, TAGS = 4, COMMS = 2, LATE_TAG = 100, HOLE = 64 };
enum { BUFFERED_LIMIT = 4096, BUFFER = 4 << 20, GROWTH_KIB = 16 << 10 };

static uint64_t seed = 1;
static size_t longest = 100 << 10;
static MPI_Comm comms[COMMS];

enum mode { ISEND, ISSEND, BSEND, IBSEND, SEND, SSEND, RSEND, IRSEND, MODES };
enum { LATE_MODES = SEND };
enum { RECV, PROBE, IPROBE, MPROBE, IMPROBE, HOWS };
enum layout { PLAIN, EVERY_SECOND, THREE_OF_FOUR, HOLE_AFTER_FIRST, LAYOUTS };

struct message {
    int source, dest, number, tag, comm;
    enum mode mode;
    /* Received by a call made after it was sent, not by one posted before. */
    bool late;
    int how;
    MPI_Datatype element;
    size_t element_size;
    int count;
    enum layout out, in;
};

static uint64_t state;

static unsigned draw(unsigned below)
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (unsigned)((z ^ z >> 31) % below);
}

/* Ready sends are drawn only where the receives are known to be posted. */
static struct message drawn(int source, int dest, int number, bool ready)
{
    static const MPI_Datatype elements[] = { MPI_BYTE, MPI_INT, MPI_DOUBLE };
    static const size_t element_sizes[] = { 1, sizeof(int), sizeof(double) };
    struct message m = { .source = source, .dest = dest, .number = number };
    state = ((seed * 64 + (uint64_t)source) * 64 + (uint64_t)dest) * 100000 + (uint64_t)number;
    unsigned which = draw(3), kind = draw(100);
    size_t bytes = kind < 70 ? draw(300) : kind < 95 ? draw(8192) : 100 + draw(100 << 10);
    bytes = bytes > longest ? bytes % longest : bytes;
    m.element = elements[which];
    m.element_size = element_sizes[which];
    m.count = (int)(bytes / m.element_size / 3 * 3);
    m.out = m.count == 0 ? PLAIN : (enum layout)draw(LAYOUTS);
    m.in = m.count == 0 ? PLAIN : (enum layout)draw(LAYOUTS);
    m.late = draw(3) == 0;
    m.how = (int)draw(HOWS);
    m.comm = (int)draw(COMMS);
    m.tag = (int)draw(TAGS) + (m.late ? LATE_TAG : 0);
    m.mode = (enum mode)draw(m.late ? LATE_MODES : ready ? MODES : RSEND);
    if (bytes > BUFFERED_LIMIT && (m.mode == BSEND || m.mode == IBSEND))
        m.mode = ISSEND;
    return m;
}

static size_t place(const struct message *m, enum layout layout, size_t i)
{
    switch (layout) {
    case EVERY_SECOND: return 2 * i * m->element_size;
    case THREE_OF_FOUR: return (i + i / 3) * m->element_size;
    case HOLE_AFTER_FIRST: return i * m->element_size + (i > 0 ? HOLE : 0);
    default: return i * m->element_size;
    }
}

static size_t extent(const struct message *m, enum layout layout)
{
    return m->count == 0 ? 0 : place(m, layout, (size_t)m->count - 1) + m->element_size;
}

/* The message as it lies in memory, holes included. */
static void draw_image(const struct message *m, enum layout layout, unsigned char *image)
{
    unsigned name = seed_of(m->source * 64 + m->dest, m->number, (size_t)m->count);
    memset(image, 0xA5, extent(m, layout));
    for (size_t i = 0, byte = 0; i < (size_t)m->count; i++)
        for (size_t b = 0; b < m->element_size; b++, byte++)
            image[place(m, layout, i) + b] = pattern(name, byte);
}

/* Gives the count to use with the type. */
static int make_type(const struct message *m, enum layout layout, MPI_Datatype *type)
{
    int lengths[2] = { 1, m->count - 1 };
    MPI_Aint places[2] = { 0, (MPI_Aint)m->element_size + HOLE };
    *type = m->element;
    switch (layout) {
    case EVERY_SECOND: MPI(MPI_Type_vector(m->count, 1, 2, m->element, type)); break;
    case THREE_OF_FOUR: MPI(MPI_Type_vector(m->count / 3, 3, 4, m->element, type)); break;
    case HOLE_AFTER_FIRST:
        MPI(MPI_Type_create_hindexed(2, lengths, places, m->element, type));
        break;
    default: return m->count;
    }
    MPI(MPI_Type_commit(type));
    return 1;
}

static void free_type(const struct message *m, MPI_Datatype *type)
{
    if (*type != m->element)
        MPI(MPI_Type_free(type));
}

static void verify(const struct message *m, unsigned char *buffer, MPI_Status *status)
{
    size_t size = extent(m, m->in);
    unsigned char *want = guarded_new(size);
    int count = -1;
    MPI(MPI_Get_count(status, m->element, &count));
    CHECK_EQ(status->MPI_SOURCE, m->source);
    CHECK_EQ(status->MPI_TAG, m->tag);
    CHECK_EQ(count, m->count);
    draw_image(m, m->in, want);
    if (memcmp(buffer, want, size) != 0) {
        size_t i = 0;
        while (buffer[i] == want[i])
            i++;
        fprintf(stderr, "rank %d: seed %llu, message %d from %d: byte %zu of %zu is wrong\n",
                check_rank, (unsigned long long)seed, m->number, m->source, i, size);
        CHECK_EQ(buffer[i], want[i]);
    }
    GUARDED_FREE(want, size);
    GUARDED_FREE(buffer, size);
}

/* Gives the buffer, which must live as long as the request. */
static unsigned char *send_one(const struct message *m, MPI_Request *request)
{
    MPI_Comm comm = comms[m->comm];
    MPI_Datatype type;
    unsigned char *buffer = guarded_new(extent(m, m->out));
    int n = make_type(m, m->out, &type), to = m->dest, tag = m->tag;
    draw_image(m, m->out, buffer);
    *request = MPI_REQUEST_NULL;
    switch (m->mode) {
    case ISEND: MPI(MPI_Isend(buffer, n, type, to, tag, comm, request)); break;
    case ISSEND: MPI(MPI_Issend(buffer, n, type, to, tag, comm, request)); break;
    case BSEND: MPI(MPI_Bsend(buffer, n, type, to, tag, comm)); break;
    case IBSEND: MPI(MPI_Ibsend(buffer, n, type, to, tag, comm, request)); break;
    case SEND: MPI(MPI_Send(buffer, n, type, to, tag, comm)); break;
    case SSEND: MPI(MPI_Ssend(buffer, n, type, to, tag, comm)); break;
    case RSEND: MPI(MPI_Rsend(buffer, n, type, to, tag, comm)); break;
    default: MPI(MPI_Irsend(buffer, n, type, to, tag, comm, request)); break;
    }
    free_type(m, &type);
    return buffer;
}

static unsigned char *post_one(const struct message *m, MPI_Request *request)
{
    MPI_Datatype type;
    unsigned char *buffer = guarded_new(extent(m, m->in));
    int n = make_type(m, m->in, &type);
    MPI(MPI_Irecv(buffer, n, type, m->source, m->tag, comms[m->comm], request));
    free_type(m, &type);
    return buffer;
}

static void receive_late(const struct message *m)
{
    MPI_Comm comm = comms[m->comm];
    MPI_Datatype type;
    MPI_Message message;
    MPI_Status status;
    unsigned char *buffer = guarded_new(extent(m, m->in));
    int n = make_type(m, m->in, &type), flag = 0, count = -1;
    switch (m->how) {
    case PROBE: MPI(MPI_Probe(m->source, m->tag, comm, &status)); break;
    case IPROBE:
        while (!flag)
            MPI(MPI_Iprobe(m->source, m->tag, comm, &flag, &status));
        break;
    case MPROBE: MPI(MPI_Mprobe(m->source, m->tag, comm, &message, &status)); break;
    case IMPROBE:
        while (!flag)
            MPI(MPI_Improbe(m->source, m->tag, comm, &flag, &message, &status));
        break;
    default: break;
    }
    if (m->how != RECV) {
        MPI(MPI_Get_count(&status, m->element, &count));
        CHECK_EQ(count, m->count);
    }
    if (m->how >= MPROBE)
        MPI(MPI_Mrecv(buffer, n, type, &message, &status));
    else
        MPI(MPI_Recv(buffer, n, type, m->source, m->tag, comm, &status));
    free_type(m, &type);
    verify(m, buffer, &status);
}

/* The messages first..first+BATCH of every pair. Blocking sends cannot lock up, because all
 * their receives are posted before anybody sends. */
static void round_of(int first, bool ready)
{
    int all = BATCH * check_size, posted = 0, sent = 0;
    struct message *early = malloc((size_t)all * sizeof *early);
    unsigned char **in = malloc((size_t)all * sizeof *in), **out = malloc((size_t)all * sizeof *out);
    size_t *out_sizes = malloc((size_t)all * sizeof *out_sizes);
    MPI_Request *receives = malloc((size_t)all * sizeof *receives);
    MPI_Request *sends = malloc((size_t)all * sizeof *sends);

    doing("posting receives", first);
    for (int number = first; number < first + BATCH; number++) {
        for (int i = 0; i < check_size; i++) {
            struct message m = drawn((check_rank + i) % check_size, check_rank, number, ready);
            if (m.late)
                continue;
            early[posted] = m;
            in[posted] = post_one(&m, &receives[posted]);
            posted++;
        }
    }
    if (ready)
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    doing("sending", first);
    for (int number = first; number < first + BATCH; number++) {
        for (int i = 0; i < check_size; i++) {
            struct message m = drawn(check_rank, (check_rank * 3 + i) % check_size, number, ready);
            out[sent] = send_one(&m, &sends[sent]);
            out_sizes[sent] = extent(&m, m.out);
            sent++;
        }
    }
    doing("receiving late", first);
    for (int number = first; number < first + BATCH; number++) {
        for (int i = check_size - 1; i >= 0; i--) {
            struct message m = drawn(i, check_rank, number, ready);
            if (m.late)
                receive_late(&m);
        }
    }
    doing("completing receives", first);
    for (int left = posted; left > 0; left--) {
        MPI_Status status;
        int i = MPI_UNDEFINED;
        MPI(MPI_Waitany(posted, receives, &i, &status));
        if (CHECK(i != MPI_UNDEFINED))
            verify(&early[i], in[i], &status);
    }
    doing("completing sends", first);
    MPI(MPI_Waitall(sent, sends, MPI_STATUSES_IGNORE));
    for (int i = 0; i < sent; i++)
        GUARDED_FREE(out[i], out_sizes[i]);
    free(early);
    free(in);
    free(out);
    free(out_sizes);
    free(receives);
    free(sends);
}

int main(int argc, char **argv)
{
    int rounds, space = BUFFER;
    long warm = 0;
    void *buffer = malloc(BUFFER);
    check_start(&argc, &argv, "mixed", MPI_THREAD_SINGLE, 1);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "small") == 0)
            longest = 4096;
        else
            seed = strtoull(argv[i], NULL, 10);
    }
    if (!CHECK(check_size <= 64))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI(MPI_Buffer_attach(buffer, space));
    comms[0] = MPI_COMM_WORLD;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]));
    rounds = (MESSAGES + BATCH * check_size - 1) / (BATCH * check_size);
    for (int round = 0; round < rounds; round++) {
        round_of(round * BATCH, round % 3 == 0);
        if (round == rounds / 2)
            warm = resident_kib();
    }
    doing("memory growth, KiB", resident_kib() - warm);
    CHECK(resident_kib() - warm < GROWTH_KIB);
    MPI(MPI_Comm_free(&comms[1]));
    MPI(MPI_Buffer_detach(&buffer, &space));
    free(buffer);
    return check_finish();
}
