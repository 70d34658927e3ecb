/* Buffers in device memory, as accelerator.c lends it: every pairing of device and host, of one
 * block and a vector, in all ways to send and receive; truncation; messages to oneself; many at
 * once; cancelled receives.
 *
 * usage: device COMPONENT NAME EXPECTATION [whole]
 *
 * the path of the accelerator component that the host has loaded, the transport's name, and how
 * messages in one piece of device memory are to go: staged, sends, direct, refused or some. With
 * `whole`, no message is truncated: shm of libfabric 2.1 crashes and hangs over that by itself. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "../mpi/check.h"

enum { READY = 11, FIRST_TAG = 100 };

enum way { SEND_AFTER_PROBE, SEND_POSTED, SSEND, MRECV, SENDRECV, PERSISTENT, SELF, WAYS };

static const char *const way_names[] = {
    "Send and a late Recv", "Isend and a posted Irecv", "Ssend and Recv", "Send and Mrecv",
    "Sendrecv", "Send_init and Recv_init", "Isend and Irecv to oneself",
};

/* Message sizes and the length of a block of their vectors. */
static const struct { size_t size, block; } sizes[] = {
    { 0, 1 }, { 8, 4 }, { 128, 4 }, { 129, 3 }, { 300, 4 }, { 4096, 4 }, { 70000, 40 },
    { 4 << 20, 1024 },
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Lengths of message and receive buffer; those of the buffer are multiples of the block. */
static const struct { size_t message, room, block; } truncations[] = {
    { 8, 0, 1 }, { 129, 128, 4 }, { 300, 8, 4 }, { 4096, 300, 4 }, { 70000, 128, 4 },
    { 4 << 20, 70000, 40 }, { 4 << 20, (4 << 20) - 1024, 1024 },
};
enum { TRUNCATIONS = sizeof truncations / sizeof truncations[0] };

static struct {
    void *(*alloc)(size_t);
    void (*free)(void *);
    void (*write)(void *, const void *, size_t);
    void (*read)(void *, const void *, size_t);
    uint64_t (*copies)(void);
} standin;

/* What provider.c counts, where that is preloaded. */
static struct {
    uint64_t (*sends)(void);
    uint64_t (*receives)(void);
    uint64_t (*live)(void);
} provider;

/* How messages in one piece of device memory are to go: through host memory; straight out of the
 * device; straight out of it and into it; straight if the provider would register them; some. */
static enum expectation { STAGED, SENDS, DIRECT, REFUSED, SOME, EXPECTATIONS } expectation;
static const char *const expectation_names[] = { "staged", "sends", "direct", "refused", "some" };

static int peer, tag = FIRST_TAG;

/* Blocks with gaps of the same length between them, or one block, between guard zones. `image` is
 * what the region holds, in memory that can be looked at. */
struct buffer {
    bool device, gapped;
    size_t size, block, span, whole;
    unsigned char *image, *region, *base;
    MPI_Datatype type;
    int count;
};

static void to_region(struct buffer *buffer)
{
    if (buffer->device)
        standin.write(buffer->region, buffer->image, buffer->whole);
    else
        memcpy(buffer->region, buffer->image, buffer->whole);
}

static void from_region(struct buffer *buffer)
{
    if (buffer->device)
        standin.read(buffer->image, buffer->region, buffer->whole);
    else
        memcpy(buffer->image, buffer->region, buffer->whole);
}

static struct buffer buffer_new(bool device, bool gapped, size_t size, size_t block)
{
    struct buffer made = { .device = device, .gapped = gapped, .size = size, .block = block };
    made.span = gapped && size != 0 ? 2 * size - block : size;
    made.whole = made.span + 2 * CHECK_GUARD;
    made.image = malloc(made.whole);
    made.region = device ? standin.alloc(made.whole) : malloc(made.whole);
    if (made.image == NULL || made.region == NULL)
        abort();
    made.base = made.region + CHECK_GUARD;
    memset(made.image, 0xA5, made.whole);
    to_region(&made);
    made.type = MPI_BYTE;
    made.count = (int)size;
    if (gapped) {
        MPI(MPI_Type_vector((int)(size / block), (int)block, 2 * (int)block, MPI_BYTE, &made.type));
        MPI(MPI_Type_commit(&made.type));
        made.count = 1;
    }
    return made;
}

static void buffer_free(struct buffer *buffer)
{
    if (buffer->gapped)
        MPI(MPI_Type_free(&buffer->type));
    if (buffer->device)
        standin.free(buffer->region);
    else
        free(buffer->region);
    free(buffer->image);
}

static void buffer_fill(struct buffer *buffer, unsigned seed)
{
    unsigned char *to = buffer->image + CHECK_GUARD;
    for (size_t i = 0; i < buffer->size; i++)
        to[buffer->gapped ? i + i / buffer->block * buffer->block : i] = pattern(seed, i);
    to_region(buffer);
}

/* The bytes of the message, everything around them as it was. */
static void buffer_verify(struct buffer *buffer, unsigned seed)
{
    unsigned char *at, *end;
    size_t done = 0;
    from_region(buffer);
    at = buffer->image + CHECK_GUARD;
    end = at + buffer->span;
    UNTOUCHED(buffer->image, at);
    UNTOUCHED(end, end + CHECK_GUARD);
    if (!buffer->gapped) {
        VERIFY(at, buffer->size, seed);
        return;
    }
    for (; done < buffer->size; done += buffer->block, at += 2 * buffer->block) {
        for (size_t i = 0; i < buffer->block; i++) {
            if (!CHECK_EQ(at[i], pattern(seed, done + i)))
                return;
        }
        if (at + buffer->block < end && !UNTOUCHED(at + buffer->block, at + 2 * buffer->block))
            return;
    }
}

#define OF(buffer) (buffer)->base, (buffer)->count, (buffer)->type

static void send_one(enum way way, struct buffer *from)
{
    MPI_Request request;
    switch (way) {
    case SSEND:
        MPI(MPI_Ssend(OF(from), peer, tag, MPI_COMM_WORLD));
        break;
    case SEND_POSTED:
        await_token(peer, READY, MPI_COMM_WORLD);
        MPI(MPI_Isend(OF(from), peer, tag, MPI_COMM_WORLD, &request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        break;
    case PERSISTENT:
        MPI(MPI_Send_init(OF(from), peer, tag, MPI_COMM_WORLD, &request));
        for (unsigned turn = 0; turn < 2; turn++) {
            buffer_fill(from, (unsigned)tag + turn);
            MPI(MPI_Start(&request));
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
        MPI(MPI_Request_free(&request));
        break;
    default:
        MPI(MPI_Send(OF(from), peer, tag, MPI_COMM_WORLD));
    }
}

static void receive_one(enum way way, struct buffer *to, MPI_Status *status)
{
    MPI_Request request;
    MPI_Message message;
    switch (way) {
    case SEND_POSTED:
        MPI(MPI_Irecv(OF(to), peer, tag, MPI_COMM_WORLD, &request));
        send_token(peer, READY, MPI_COMM_WORLD);
        MPI(MPI_Wait(&request, status));
        break;
    case MRECV:
        MPI(MPI_Mprobe(peer, tag, MPI_COMM_WORLD, &message, status));
        CHECK_STATUS(status, peer, tag, (int)to->size);
        MPI(MPI_Mrecv(OF(to), &message, status));
        break;
    case PERSISTENT:
        MPI(MPI_Recv_init(OF(to), peer, tag, MPI_COMM_WORLD, &request));
        for (unsigned turn = 0; turn < 2; turn++) {
            MPI(MPI_Start(&request));
            MPI(MPI_Wait(&request, status));
            buffer_verify(to, (unsigned)tag + turn);
        }
        MPI(MPI_Request_free(&request));
        break;
    default:
        if (way == SEND_AFTER_PROBE)
            MPI(MPI_Probe(peer, tag, MPI_COMM_WORLD, status));
        MPI(MPI_Recv(OF(to), peer, tag, MPI_COMM_WORLD, status));
    }
}

static void to_oneself(struct buffer *from, struct buffer *to, MPI_Status *status)
{
    MPI_Request requests[2];
    MPI_Status both[2];
    MPI(MPI_Isend(OF(from), check_rank, tag, MPI_COMM_WORLD, &requests[0]));
    MPI(MPI_Irecv(OF(to), check_rank, tag, MPI_COMM_WORLD, &requests[1]));
    MPI(MPI_Waitall(2, requests, both));
    *status = both[1];
}

static bool is_staged(const struct buffer *buffer, bool direct)
{
    return buffer->device && buffer->size != 0 && (buffer->gapped || !direct);
}

static bool is_direct(const struct buffer *buffer, bool direct)
{
    return buffer->device && buffer->size != 0 && !buffer->gapped && direct;
}

/* Bytes can have got out of a device buffer, or into one, only through a copy function, or through
 * the provider. */
static void one_message(enum way way, struct buffer *from, struct buffer *to, int sender)
{
    bool both = way == SENDRECV || way == SELF, sends = both || check_rank == sender;
    bool receives = both || check_rank != sender;
    /* The last of the two messages of a persistent pair has another seed. */
    unsigned seed = (unsigned)tag + (way == PERSISTENT ? 1 : 0);
    uint64_t times = way == PERSISTENT ? 2 : 1;
    bool direct_sends = expectation == SENDS || expectation == DIRECT;
    bool direct_receives = expectation == DIRECT;
    MPI_Status status;
    uint64_t before, sent = 0, received = 0;
    if (sends)
        buffer_fill(from, seed);
    before = standin.copies();
    if (provider.live != NULL) {
        sent = provider.sends();
        received = provider.receives();
    }
    if (way == SELF)
        to_oneself(from, to, &status);
    else if (way == SENDRECV)
        MPI(MPI_Sendrecv(OF(from), peer, tag, OF(to), peer, tag, MPI_COMM_WORLD, &status));
    else if (sends)
        send_one(way, from);
    else
        receive_one(way, to, &status);
    if (expectation != SOME)
        CHECK_EQ(standin.copies() > before, (sends && is_staged(from, direct_sends)) ||
                                                (receives && is_staged(to, direct_receives)));
    if (provider.live != NULL && expectation != SOME) {
        CHECK_EQ(provider.sends() - sent, sends && is_direct(from, direct_sends) ? times : 0);
        CHECK_EQ(provider.receives() - received,
                 receives && is_direct(to, direct_receives) ? times : 0);
        CHECK_EQ(provider.live(), 0);
    }
    if (receives) {
        CHECK_STATUS(&status, way == SELF ? check_rank : peer, tag, (int)from->size);
        buffer_verify(to, seed);
    }
    if (sends)
        buffer_verify(from, seed);
    tag += 2;
}

static void one_pairing(enum way way, int which, bool from_device, bool to_device, int shape)
{
    for (int sender = 0; sender < (way == SENDRECV || way == SELF ? 1 : 2); sender++) {
        struct buffer from = buffer_new(from_device, shape & 1, sizes[which].size, sizes[which].block);
        struct buffer to = buffer_new(to_device, shape & 2, sizes[which].size, sizes[which].block);
        one_message(way, &from, &to, sender);
        buffer_free(&from);
        buffer_free(&to);
    }
}

/* The message waits for the receive, or the receive for the message. */
static void one_truncation(int which, bool gapped, bool late)
{
    struct buffer from = buffer_new(true, false, truncations[which].message, 1);
    struct buffer to = buffer_new(true, gapped, truncations[which].room, truncations[which].block);
    MPI_Request request;
    MPI_Status status;
    int class = -1;
    buffer_fill(&from, (unsigned)tag);
    if (check_rank == 0) {
        if (!late)
            await_token(peer, READY, MPI_COMM_WORLD);
        MPI(MPI_Send(OF(&from), peer, tag, MPI_COMM_WORLD));
    } else {
        if (late)
            MPI(MPI_Probe(peer, tag, MPI_COMM_WORLD, &status));
        MPI(MPI_Irecv(OF(&to), peer, tag, MPI_COMM_WORLD, &request));
        if (!late)
            send_token(peer, READY, MPI_COMM_WORLD);
        MPI(MPI_Error_class(MPI_Wait(&request, &status), &class));
        CHECK_EQ(class, MPI_ERR_TRUNCATE);
        CHECK_EQ(status.MPI_SOURCE, peer);
        CHECK_EQ(status.MPI_TAG, tag);
        /* What of the message lies in the buffer is not said; around it nothing may have changed. */
        from_region(&to);
        for (size_t i = 0; i < to.whole; i++) {
            bool outside = i < CHECK_GUARD || i >= CHECK_GUARD + to.span;
            bool gap = gapped && !outside && (i - CHECK_GUARD) / to.block % 2 == 1;
            if ((outside || gap) && !CHECK_EQ(to.image[i], 0xA5))
                break;
        }
    }
    buffer_free(&from);
    buffer_free(&to);
    tag += 2;
}

/* More operations at once than a careless user of keys would get away with. */
static void many_at_once(void)
{
    enum { MANY = 64, SIZE = 20000 };
    struct buffer from[MANY], to[MANY];
    MPI_Request requests[2 * MANY];
    for (int i = 0; i < MANY; i++) {
        to[i] = buffer_new(true, i % 8 == 7, SIZE, 40);
        MPI(MPI_Irecv(OF(&to[i]), peer, tag + i, MPI_COMM_WORLD, &requests[i]));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < MANY; i++) {
        from[i] = buffer_new(true, false, SIZE, 40);
        buffer_fill(&from[i], (unsigned)(tag + i));
        if (i % 2 == 0)
            MPI(MPI_Isend(OF(&from[i]), peer, tag + i, MPI_COMM_WORLD, &requests[MANY + i]));
        else
            MPI(MPI_Issend(OF(&from[i]), peer, tag + i, MPI_COMM_WORLD, &requests[MANY + i]));
    }
    MPI(MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++) {
        buffer_verify(&to[i], (unsigned)(tag + i));
        buffer_free(&from[i]);
        buffer_free(&to[i]);
    }
    if (provider.live != NULL)
        CHECK_EQ(provider.live(), 0);
    tag += MANY;
}

/* A cancelled receive leaves its buffer alone, and the next one gets the message. */
static void one_cancel(bool gapped)
{
    struct buffer given_up = buffer_new(true, gapped, 4096, 4), to = buffer_new(true, gapped, 4096, 4);
    struct buffer from = buffer_new(true, false, 4096, 1);
    MPI_Request request;
    MPI_Status status;
    int flag = 0;
    MPI(MPI_Irecv(OF(&given_up), peer, tag, MPI_COMM_WORLD, &request));
    MPI(MPI_Cancel(&request));
    MPI(MPI_Wait(&request, &status));
    MPI(MPI_Test_cancelled(&status, &flag));
    CHECK_EQ(flag, 1);
    if (provider.live != NULL)
        CHECK_EQ(provider.live(), 0);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    buffer_fill(&from, (unsigned)tag);
    MPI(MPI_Sendrecv(OF(&from), peer, tag, OF(&to), peer, tag, MPI_COMM_WORLD, &status));
    buffer_verify(&to, (unsigned)tag);
    from_region(&given_up);
    UNTOUCHED(given_up.image, given_up.image + given_up.whole);
    buffer_free(&given_up);
    buffer_free(&from);
    buffer_free(&to);
    tag += 2;
}

/* The transport's counters; a handle counts from its beginning. */
static MPI_T_pvar_session session;
static MPI_T_pvar_handle direct, refused;

static void open_counter(const char *transport, const char *name, MPI_T_pvar_handle *handle)
{
    char wanted[128];
    int index = -1, count;
    snprintf(wanted, sizeof wanted, "mtl_%s_%s", transport, name);
    if (!MPI(MPI_T_pvar_get_index(wanted, MPI_T_PVAR_CLASS_COUNTER, &index)))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI(MPI_T_pvar_handle_alloc(session, index, NULL, handle, &count));
}

static void open_counters(const char *transport)
{
    int level;
    MPI(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    MPI(MPI_T_pvar_session_create(&session));
    open_counter(transport, "device_direct", &direct);
    open_counter(transport, "device_refused", &refused);
}

static void check_counters(void)
{
    unsigned long long went = 0, stayed = 0;
    MPI(MPI_T_pvar_read(session, direct, &went));
    MPI(MPI_T_pvar_read(session, refused, &stayed));
    CHECK_EQ(went > 0, expectation == SENDS || expectation == DIRECT || expectation == SOME);
    CHECK_EQ(stayed > 0, expectation == REFUSED || expectation == SOME);
    if (provider.live != NULL)
        CHECK_EQ(went, provider.sends() + provider.receives());
    MPI(MPI_T_pvar_session_free(&session));
    MPI(MPI_T_finalize());
}

static bool understand(const char *wanted)
{
    while (expectation < EXPECTATIONS && strcmp(expectation_names[expectation], wanted) != 0)
        expectation++;
    return expectation < EXPECTATIONS;
}

static bool find_standin(const char *path)
{
    void *file = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (file == NULL)
        return false;
    *(void **)&standin.alloc = dlsym(file, "standin_alloc");
    *(void **)&standin.free = dlsym(file, "standin_free");
    *(void **)&standin.write = dlsym(file, "standin_write");
    *(void **)&standin.read = dlsym(file, "standin_read");
    *(void **)&standin.copies = dlsym(file, "standin_copies");
    *(void **)&provider.sends = dlsym(RTLD_DEFAULT, "provider_sends");
    *(void **)&provider.receives = dlsym(RTLD_DEFAULT, "provider_receives");
    *(void **)&provider.live = dlsym(RTLD_DEFAULT, "provider_live");
    return standin.alloc && standin.free && standin.write && standin.read && standin.copies;
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "device", MPI_THREAD_SINGLE, 2);
    if (!CHECK(argc >= 4 && find_standin(argv[1]) && understand(argv[3])))
        MPI_Abort(MPI_COMM_WORLD, 2);
    CHECK_EQ(check_size, 2);
    peer = 1 - check_rank;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));

    open_counters(argv[2]);

    for (int way = 0; way < WAYS; way++) {
        for (int which = 0; which < SIZES; which++) {
            doing(way_names[way], (long long)sizes[which].size);
            for (int shape = 0; shape < 4; shape++) {
                one_pairing(way, which, true, true, shape);
                one_pairing(way, which, true, false, shape);
                one_pairing(way, which, false, true, shape);
            }
        }
    }
    for (int which = 0; which < (argc > 4 ? 0 : TRUNCATIONS); which++) {
        for (int turn = 0; turn < 4; turn++) {
            doing("truncation", (long long)truncations[which].message);
            one_truncation(which, turn & 1, turn & 2);
        }
    }
    doing("a message after those", 0);
    one_pairing(SEND_POSTED, SIZES - 1, true, true, 3);
    doing("many at once", 0);
    many_at_once();
    doing("cancel", 0);
    one_cancel(false);
    one_cancel(true);
    doing("the counters", 0);
    check_counters();
    return check_finish();
}
