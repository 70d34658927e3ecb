/* Messages between buffers of all kinds: on the heap, mapped apart, pinned, on two devices, managed, of a pool.
 *
 *     messages early|late [LONGEST]
 *
 * early: CUDA is initialised before MPI; late: after it. */
#include "cuda.h"

#include <mpi-ext.h>

enum { ROOM = 64, SMALL = 200 };
static size_t longest = 4 << 20;

/* Each way to send and to receive. */
enum way { STANDARD, SYNCHRONOUS, BUFFERED, READY, NONBLOCKING, PERSISTENT, WAYS };
static const char *const way_names[WAYS] = {"send", "ssend", "bsend", "rsend", "isend", "persistent send"};
enum catch { RECEIVE, POSTED, PROBED, MATCHED, STARTED, CATCHES };

static void give(enum way way, const void *from, int len, int to, int tag)
{
    MPI_Request request;
    switch (way) {
    case STANDARD: MPI(MPI_Send(from, len, MPI_BYTE, to, tag, MPI_COMM_WORLD)); break;
    case SYNCHRONOUS: MPI(MPI_Ssend(from, len, MPI_BYTE, to, tag, MPI_COMM_WORLD)); break;
    case BUFFERED: MPI(MPI_Bsend(from, len, MPI_BYTE, to, tag, MPI_COMM_WORLD)); break;
    case READY:
        MPI(MPI_Recv(NULL, 0, MPI_BYTE, to, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI(MPI_Rsend(from, len, MPI_BYTE, to, tag, MPI_COMM_WORLD));
        break;
    case NONBLOCKING:
        MPI(MPI_Isend(from, len, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        break;
    default:
        MPI(MPI_Send_init(from, len, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request));
        MPI(MPI_Start(&request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        MPI(MPI_Request_free(&request));
    }
}

static void take(enum catch catch, bool ready, void *to, int len, int from, int tag)
{
    MPI_Status status;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message;
    int count = -1;
    switch (catch) {
    case POSTED: MPI(MPI_Irecv(to, len, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request)); break;
    case STARTED:
        MPI(MPI_Recv_init(to, len, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request));
        MPI(MPI_Start(&request));
        break;
    default:
        if (ready) MPI(MPI_Irecv(to, len, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request));
    }
    if (ready) MPI(MPI_Send(NULL, 0, MPI_BYTE, from, tag, MPI_COMM_WORLD));
    if (request != MPI_REQUEST_NULL) {
        MPI(MPI_Wait(&request, &status));
        if (catch == STARTED) MPI(MPI_Request_free(&request));
    } else if (catch == PROBED) {
        MPI(MPI_Probe(from, tag, MPI_COMM_WORLD, &status));
        MPI(MPI_Recv(to, len, MPI_BYTE, from, tag, MPI_COMM_WORLD, &status));
    } else if (catch == MATCHED) {
        MPI(MPI_Mprobe(from, tag, MPI_COMM_WORLD, &message, &status));
        MPI(MPI_Mrecv(to, len, MPI_BYTE, &message, &status));
    } else {
        MPI(MPI_Recv(to, len, MPI_BYTE, from, tag, MPI_COMM_WORLD, &status));
    }
    MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK_EQ(count, len);
}

/* From every kind to every kind, by every way, in lengths about the limits of eager, rendezvous and pipelines. */
static void between(int peer)
{
    static const size_t sizes[] = {1, 8, 255, 1025, 4096, 12289, 65537, 300001, 1 << 20, 4 << 20};
    struct buffer buffers[KINDS];
    char *attached = malloc(longest + MPI_BSEND_OVERHEAD);
    unsigned turn = 0;
    MPI(MPI_Buffer_attach(attached, (int)longest + MPI_BSEND_OVERHEAD));
    for (enum kind kind = 0; kind < KINDS; kind++) buffers[kind] = buffer_new(kind, longest + 2 * ROOM);
    for (size_t number = 0; number < sizeof sizes / sizeof *sizes && sizes[number] <= longest; number++) {
        size_t len = sizes[number];
        for (enum kind from = 0; from < KINDS; from++) {
            for (enum kind to = 0; to < KINDS; to++, turn++) {
                enum way way = turn % WAYS;
                enum catch catch = turn / WAYS % CATCHES;
                unsigned seed = turn * 3 + 1;
                doing(way_names[way], (long long)(len * 100 + from * 10 + to));
                if (check_rank == 0) {
                    buffer_fill(&buffers[from], ROOM, len, seed);
                    give(way, buffers[from].start + ROOM, (int)len, peer, (int)turn);
                } else {
                    buffer_fill(&buffers[to], 0, len + 2 * ROOM, seed + 1);
                    take(catch, way == READY, buffers[to].start + ROOM, (int)len, peer, (int)turn);
                    buffer_holds(&buffers[to], ROOM, len, seed);
                    /* What is around it is as it was. */
                    unsigned char around[2 * ROOM], before[2 * ROOM];
                    unsigned char *all = malloc(len + 2 * ROOM);
                    fill(all, len + 2 * ROOM, seed + 1);
                    memcpy(before, all, ROOM);
                    memcpy(before + ROOM, all + ROOM + len, ROOM);
                    free(all);
                    buffer_read(&buffers[to], 0, around, ROOM);
                    buffer_read(&buffers[to], ROOM + len, around + ROOM, ROOM);
                    CHECK(memcmp(around, before, sizeof before) == 0);
                }
            }
        }
    }
    void *detached;
    int len;
    MPI(MPI_Buffer_detach(&detached, &len));
    free(attached);
    for (enum kind kind = 0; kind < KINDS; kind++) buffer_free(&buffers[kind]);
}

/* Many at once, which are not expected, and received in another order. */
static void many(int peer)
{
    struct buffer buffers[KINDS];
    MPI_Request requests[KINDS * SMALL];
    doing("many", 0);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        buffers[kind] = buffer_new(kind, SMALL * 100);
        for (int number = 0; number < SMALL; number++)
            buffer_fill(&buffers[kind], (size_t)number * 100, 100, check_rank == 0 ? 1000u * kind + (unsigned)number : 7);
    }
    if (check_rank == 0) {
        for (int number = 0; number < KINDS * SMALL; number++)
            MPI(MPI_Isend(buffers[number / SMALL].start + number % SMALL * 100, 100, MPI_BYTE, peer, number, MPI_COMM_WORLD, &requests[number]));
        MPI(MPI_Send(NULL, 0, MPI_BYTE, peer, 9999, MPI_COMM_WORLD));
    } else {
        MPI(MPI_Recv(NULL, 0, MPI_BYTE, peer, 9999, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int number = KINDS * SMALL - 1; number >= 0; number--)
            MPI(MPI_Irecv(buffers[number / SMALL].start + number % SMALL * 100, 100, MPI_BYTE, peer, number, MPI_COMM_WORLD, &requests[number]));
    }
    MPI(MPI_Waitall(KINDS * SMALL, requests, MPI_STATUSES_IGNORE));
    for (enum kind kind = 0; kind < KINDS; kind++) {
        for (int number = 0; number < SMALL; number++)
            buffer_holds(&buffers[kind], (size_t)number * 100, 100, 1000u * kind + (unsigned)number);
        buffer_free(&buffers[kind]);
    }
}

/* To itself, and what swaps. */
static void self_and_swap(int peer)
{
    for (size_t len = 1; len <= longest; len = len * 17 + 3) {
        for (enum kind from = 0; from < KINDS; from++) {
            for (enum kind to = 0; to < KINDS; to++) {
                struct buffer source = buffer_new(from, len), target = buffer_new(to, len);
                unsigned seed = (unsigned)(len + from * 10 + to);
                doing("to itself", (long long)(len * 100 + from * 10 + to));
                buffer_fill(&source, 0, len, seed);
                buffer_fill(&target, 0, len, seed + 1);
                MPI(MPI_Sendrecv(source.start, (int)len, MPI_BYTE, 0, 3, target.start, (int)len, MPI_BYTE, 0, 3, MPI_COMM_SELF, MPI_STATUS_IGNORE));
                buffer_holds(&target, 0, len, seed);
                doing("swap", (long long)(len * 100 + from * 10 + to));
                buffer_fill(&source, 0, len, seed + 100 * (unsigned)check_rank);
                MPI(MPI_Sendrecv_replace(source.start, (int)len, MPI_BYTE, peer, 4, peer, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                buffer_holds(&source, 0, len, seed + 100 * (unsigned)peer);
                buffer_free(&source);
                buffer_free(&target);
            }
        }
    }
}

/* Addresses that are a device's now were the host's a moment ago, and the other way round. */
static void change(int peer)
{
    for (int round = 0; round < 20; round++) {
        enum kind kind = round % 2 == 0 ? MAPPED : FIRST;
        struct buffer buffer = buffer_new(kind, 2 << 20);
        doing("change", round);
        if (check_rank == 0) {
            buffer_fill(&buffer, 0, 3000, (unsigned)round);
            MPI(MPI_Send(buffer.start, 3000, MPI_BYTE, peer, round, MPI_COMM_WORLD));
        } else {
            MPI(MPI_Recv(buffer.start, 3000, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            buffer_holds(&buffer, 0, 3000, (unsigned)round);
        }
        buffer_free(&buffer);
    }
}

#if HAS_ACCELERATORS
/* Performance variables count from where their handle was made. */
struct counter {
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
};

static struct counter counter_new(const char *name)
{
    struct counter counter;
    int index, count, provided;
    MPI(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    if (MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS) {
        fprintf(stderr, "no variable %s\n", name);
        exit(3);
    }
    MPI(MPI_T_pvar_session_create(&counter.session));
    MPI(MPI_T_pvar_handle_alloc(counter.session, index, NULL, &counter.handle, &count));
    return counter;
}

static long long counter_read(struct counter *counter)
{
    unsigned long long value = 0;
    MPI(MPI_T_pvar_read(counter->session, counter->handle, &value));
    return (long long)value;
}

static void counter_free(struct counter *counter)
{
    MPI(MPI_T_pvar_handle_free(counter->session, &counter->handle));
    MPI(MPI_T_pvar_session_free(&counter->session));
    MPI(MPI_T_finalize());
}

/* Messages between buffers that cannot be a device's cost no question. */
static void unasked(int peer)
{
    static char data[100];
    char stack[100] = {0}, *heap = malloc(100);
    struct counter queries = counter_new("accelerator_cuda_queries");
    doing("unasked", 0);
    for (int round = 0; round < 50; round++) {
        char *buffers[] = {data, stack, heap};
        for (int which = 0; which < 3; which++) {
            if (check_rank == 0)
                MPI(MPI_Send(buffers[which], 100, MPI_BYTE, peer, 5, MPI_COMM_WORLD));
            else
                MPI(MPI_Recv(buffers[which], 100, MPI_BYTE, peer, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    }
    CHECK_EQ(counter_read(&queries), 0);
    counter_free(&queries);
    free(heap);
}
#endif

int main(int argc, char **argv)
{
    bool early = argc > 1 && strcmp(argv[1], "early") == 0;
    if (argc > 2) longest = strtoul(argv[2], NULL, 0);
    if (early) cuda_begin();
    check_start(&argc, &argv, "messages", MPI_THREAD_SINGLE, 2);
    CHECK_EQ(MPIX_Query_cuda_support(), HAS_ACCELERATORS);
    if (!early) {
        /* Messages of a program that has not begun to use CUDA. */
        char *mapped = malloc(1 << 20), one = 1;
        memset(mapped, 1, 1 << 20);
        MPI(MPI_Bcast(mapped, 1 << 20, MPI_BYTE, 0, MPI_COMM_WORLD));
        MPI(MPI_Bcast(&one, 1, MPI_BYTE, 0, MPI_COMM_WORLD));
        free(mapped);
        cuda_begin();
    }
    if (check_rank < 2) {
        int peer = 1 - check_rank;
#if HAS_ACCELERATORS
        struct counter copies = counter_new("accelerator_cuda_copies");
#endif
        between(peer);
#if HAS_ACCELERATORS
        CHECK(counter_read(&copies) > 100);
        counter_free(&copies);
#endif
        many(peer);
        self_and_swap(peer);
        change(peer);
#if HAS_ACCELERATORS
        unasked(peer);
#endif
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    int status = check_finish();
    cuda_end();
    return status;
}
