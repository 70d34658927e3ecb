/* Device memory between processes of a node. Every process says at its end what it has counted: `counter NAME VALUE`.
 *
 *     device grid [LONGEST [SHORTEST]]   between buffers of all kinds, in both directions at once, for each pair of ranks
 *     device types                       data with gaps
 *     device many COUNT                  so many allocations
 *     device anew COUNT                  an allocation that is freed and made anew, mostly at the same address
 *     device kinds                       memory of the virtual memory calls and of pools, which can be exported or not
 *     device reset                       contexts that are reset in the middle
 *     device ended                       contexts end before MPI does
 *     device unfinished                  the default stream is still at work on what is sent
 *     device later                       rank 1 begins to use CUDA after rank 0 has sent from a device
 *     device lazy                        CUDA is in use, and no buffer is a device's
 *     device none                        nobody uses CUDA
 *     device killed                      rank 1 is killed while rank 0 copies from its memory
 *     device stopped                     the same, where the copy has been asked for and has not begun
 *     device short|strided               what Open MPI 4.1 cannot send from a device */
#include "../accelerator/cuda.h"

#include <pthread.h>

/* For its types: the functions are looked up. */
#include "../cuda/driver.h"

/* --- counters */

static const char *const names[] = {
    "num_ipc_requests", "num_ipc_accepted", "num_ipc_refused", "num_ipc_not_ready", "num_ipc_retried", "num_ipc_strays",
    "num_ipc_gets", "ipc_bytes", "num_ipc_hits", "num_ipc_misses", "num_ipc_evictions", "num_ipc_stale",
    "num_staged_gets", "num_staged", "staged_bytes", "num_gets", "num_corrupt", "num_lost",
};
enum { NAMES = sizeof names / sizeof *names };
static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[NAMES];

static void counters_begin(void)
{
    int provided;
    MPI(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    MPI(MPI_T_pvar_session_create(&session));
    for (int number = 0; number < NAMES; number++) {
        char name[100];
        int index, count;
        snprintf(name, sizeof name, "btl_smcuda_%s", names[number]);
        if (MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS) {
            fprintf(stderr, "no variable %s\n", name);
            exit(3);
        }
        MPI(MPI_T_pvar_handle_alloc(session, index, NULL, &handles[number], &count));
        CHECK_EQ(count, 1);
    }
}

static void counters_end(void)
{
    for (int number = 0; number < NAMES; number++) {
        unsigned long long value = 0;
        MPI(MPI_T_pvar_read(session, handles[number], &value));
        printf("counter %s %llu\n", names[number], value);
        MPI(MPI_T_pvar_handle_free(session, &handles[number]));
    }
    MPI(MPI_T_pvar_session_free(&session));
    MPI(MPI_T_finalize());
}

/* --- what is sent */

static void exchange(enum kind from, enum kind to, size_t len, int peer, int tag)
{
    struct buffer source = buffer_new(from, len), target = buffer_new(to, len);
    unsigned seed = (unsigned)(tag * 7 + (int)len);
    MPI_Request request;
    MPI_Status status;
    int count = -1, any = tag % 3;
    doing("exchange", (long long)(len * 100 + from * 10 + to));
    buffer_fill(&source, 0, len, seed + (unsigned)check_rank);
    buffer_fill(&target, 0, len, seed + 99);
    if (tag % 2 == 0) {
        MPI(MPI_Irecv(target.start, (int)len, MPI_BYTE, any == 1 ? MPI_ANY_SOURCE : peer, any == 2 ? MPI_ANY_TAG : tag,
            MPI_COMM_WORLD, &request));
        MPI(MPI_Send(source.start, (int)len, MPI_BYTE, peer, tag, MPI_COMM_WORLD));
        MPI(MPI_Wait(&request, &status));
    } else {
        MPI(MPI_Isend(source.start, (int)len, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request));
        MPI(MPI_Probe(peer, tag, MPI_COMM_WORLD, &status));
        MPI(MPI_Recv(target.start, (int)len, MPI_BYTE, any == 1 ? MPI_ANY_SOURCE : peer, any == 2 ? MPI_ANY_TAG : tag,
            MPI_COMM_WORLD, &status));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK_EQ(count, len);
    CHECK_EQ(status.MPI_SOURCE, peer);
    buffer_holds(&target, 0, len, seed + (unsigned)peer);
    buffer_free(&source);
    buffer_free(&target);
}

static void grid(size_t longest, size_t shortest)
{
    static const size_t sizes[] = {1, 100, 4000, 4096, 4097, 5001, 65536, 524288, 524289, 1 << 20, 3000001, 8 << 20};
    int tag = 0;
    for (size_t number = 0; number < sizeof sizes / sizeof *sizes; number++) {
        if (sizes[number] > longest || sizes[number] < shortest) continue;
        for (enum kind from = 0; from < KINDS; from++) {
            for (enum kind to = 0; to < KINDS; to++) exchange(from, to, sizes[number], check_rank ^ 1, tag++);
        }
    }
}

static void types(void)
{
    MPI_Datatype type;
    enum { BLOCKS = 3000 };
    MPI(MPI_Type_vector(BLOCKS, 7, 12, MPI_BYTE, &type));
    MPI(MPI_Type_commit(&type));
    for (enum kind from = FIRST; from < KINDS; from++) {
        for (enum kind to = 0; to < KINDS; to++) {
            struct buffer source = buffer_new(from, BLOCKS * 12), target = buffer_new(to, BLOCKS * 12);
            struct buffer packed = buffer_new(to, BLOCKS * 7);
            int peer = check_rank ^ 1;
            unsigned char *all = malloc(BLOCKS * 12), *got = malloc(BLOCKS * 12);
            doing("types", from * 10 + to);
            buffer_fill(&source, 0, BLOCKS * 12, 5);
            buffer_fill(&target, 0, BLOCKS * 12, 6);
            MPI(MPI_Sendrecv(source.start, 1, type, peer, 1, target.start, 1, type, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI(MPI_Sendrecv(source.start, 1, type, peer, 2, packed.start, BLOCKS * 7, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            buffer_read(&target, 0, got, BLOCKS * 12);
            fill(all, BLOCKS * 12, 6);
            for (size_t at = 0; at < BLOCKS * 12; at++) {
                /* The last block has no gap behind it. */
                unsigned char right = at % 12 < 7 ? pattern(5, at) : all[at];
                if (!CHECK_EQ(got[at], right)) break;
            }
            buffer_read(&packed, 0, got, BLOCKS * 7);
            for (size_t at = 0; at < BLOCKS * 7; at++)
                if (!CHECK_EQ(got[at], pattern(5, at / 7 * 12 + at % 7))) break;
            /* And back: in one piece there, with gaps here. */
            buffer_fill(&target, 0, BLOCKS * 12, 6);
            MPI(MPI_Sendrecv(packed.start, BLOCKS * 7, MPI_BYTE, peer, 3, target.start, 1, type, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            buffer_read(&target, 0, got, BLOCKS * 12);
            for (size_t at = 0; at < BLOCKS * 12; at++)
                if (!CHECK_EQ(got[at], at % 12 < 7 ? pattern(5, at) : all[at])) break;
            free(all);
            free(got);
            buffer_free(&source);
            buffer_free(&target);
            buffer_free(&packed);
        }
    }
    MPI(MPI_Type_free(&type));
}

/* Many allocations, each of which is sent twice, one behind the other and then all again. */
static void many(int count)
{
    enum { LEN = 6000 };
    struct buffer *buffers = calloc((size_t)count, sizeof *buffers);
    struct buffer target = buffer_new(FIRST, LEN);
    for (int number = 0; number < count; number++) {
        buffers[number] = buffer_new(FIRST, LEN);
        buffer_fill(&buffers[number], 0, LEN, (unsigned)number);
    }
    for (int round = 0; round < 2; round++) {
        for (int number = 0; number < count; number++) {
            doing("many", number);
            if (check_rank == 0) {
                MPI(MPI_Send(buffers[number].start, LEN, MPI_BYTE, 1, number % 1000, MPI_COMM_WORLD));
            } else {
                MPI(MPI_Recv(target.start, LEN, MPI_BYTE, 0, number % 1000, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                buffer_holds(&target, 0, LEN, (unsigned)number);
            }
        }
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int number = 0; number < count; number++) buffer_free(&buffers[number]);
    buffer_free(&target);
    free(buffers);
}

static void anew(int count)
{
    size_t len = 300000;
    struct buffer target = buffer_new(FIRST, len);
    address before = 0;
    int same = 0;
    for (int round = 0; round < count; round++) {
        doing("anew", round);
        if (check_rank == 0) {
            struct buffer source = buffer_new(FIRST, len);
            same += (address)(uintptr_t)source.start == before;
            before = (address)(uintptr_t)source.start;
            buffer_fill(&source, 0, len, (unsigned)round);
            MPI(MPI_Ssend(source.start, (int)len, MPI_BYTE, 1, round, MPI_COMM_WORLD));
            buffer_free(&source);
        } else {
            MPI(MPI_Recv(target.start, (int)len, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            buffer_holds(&target, 0, len, (unsigned)round);
        }
    }
    if (check_rank == 0) {
        CHECK(same > 0);
        printf("same %d\n", same);
    }
    buffer_free(&target);
}

/* The driver's function of this name. */
#define LOOK(name) __typeof__(&name) const name##_ = (__typeof__(&name))cuda_symbol(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), #name)

enum { EXCHANGED = 700001 };

/* Both ranks send from such memory and receive in such. */
static void both_ways(address start, int tag)
{
    struct buffer source = {FIRST, EXCHANGED, (char *)(uintptr_t)start}, target = {FIRST, EXCHANGED, (char *)(uintptr_t)start + EXCHANGED + 63};
    int peer = check_rank ^ 1;
    for (int round = 0; round < 3; round++) {
        unsigned seed = (unsigned)(tag * 100 + round * 10);
        buffer_fill(&source, 0, EXCHANGED, seed + (unsigned)check_rank);
        buffer_fill(&target, 0, EXCHANGED, 1);
        MPI(MPI_Sendrecv(source.start, EXCHANGED, MPI_BYTE, peer, tag, target.start, EXCHANGED, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        buffer_holds(&target, 0, EXCHANGED, seed + (unsigned)peer);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void kinds(void)
{
    LOOK(cuMemCreate);
    LOOK(cuMemRelease);
    LOOK(cuMemAddressReserve);
    LOOK(cuMemAddressFree);
    LOOK(cuMemMap);
    LOOK(cuMemUnmap);
    LOOK(cuMemSetAccess);
    LOOK(cuMemPoolCreate);
    LOOK(cuMemPoolDestroy);
    LOOK(cuMemAllocFromPoolAsync);
    static const int types[] = {CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    enum { WHOLE = 4 << 20 };
    for (int number = 0; number < 2; number++) {
        CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, cuda_device(check_rank % CUDA_DEVICES)};
        CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = types[number], .location = here};
        CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUmemGenericAllocationHandle physical;
        address start = 0;
        doing("virtual memory", number);
        CUDA(cuMemCreate_(&physical, WHOLE, &properties, 0));
        CUDA(cuMemAddressReserve_(&start, WHOLE, 0, 0, 0));
        CUDA(cuMemMap_(start, WHOLE, 0, physical, 0));
        CUDA(cuMemSetAccess_(start, WHOLE, &access, 1));
        CUDA(cu_push(cuda_context[here.id]));
        both_ways(start, 1 + number);
        void *context;
        CUDA(cu_pop(&context));
        CUDA(cuMemUnmap_(start, WHOLE));
        CUDA(cuMemAddressFree_(start, WHOLE));
        CUDA(cuMemRelease_(physical));

        CUmemPoolProps wanted = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = types[number], .location = here};
        CUmemoryPool pool;
        doing("pool", number);
        CUDA(cu_push(cuda_context[here.id]));
        CUDA(cuMemPoolCreate_(&pool, &wanted));
        CUDA(cuMemAllocFromPoolAsync_(&start, WHOLE, pool, NULL));
        CUDA(cu_synchronize());
        both_ways(start, 3 + number);
        CUDA(cu_free_async(start, NULL));
        CUDA(cu_synchronize());
        CUDA(cuMemPoolDestroy_(pool));
        CUDA(cu_pop(&context));
    }
}

static void reset(void)
{
    for (int round = 0; round < 6; round++) {
        exchange(FIRST, SECOND, 700000, check_rank ^ 1, 2 * round);
        exchange(SECOND, FIRST, 70000, check_rank ^ 1, 2 * round + 1);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (round == 2 || (round == 4 && check_rank == 0)) {
            doing("reset", round);
            cuda_reset();
            cuda_again();
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
}

/* The default stream, which copies wait for, goes on after a while. */
static pthread_t opener;
static void *gate;
static void *opens(void *nothing)
{
    usleep(300000);
    __atomic_store_n((unsigned *)gate, 1, __ATOMIC_RELEASE);
    return nothing;
}

static void hold_back(void)
{
    LOOK(cuStreamWaitValue32_v2);
    CUDA(cu_alloc_host(&gate, sizeof(unsigned)));
    *(unsigned *)gate = 0;
    CUDA(cuStreamWaitValue32_v2_(NULL, (uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    if (pthread_create(&opener, NULL, opens, NULL) != 0) abort();
}

static void let_go(void)
{
    CHECK_EQ(pthread_join(opener, NULL), 0);
    CUDA(cu_synchronize());
    CUDA(cu_free_host(gate));
}

/* What is begun in the default stream is waited for by whoever copies. */
static void unfinished(void)
{
    LOOK(cuMemsetD8Async);
    static const size_t sizes[] = {6000, 70000, 1 << 20, 5000000};
    for (unsigned turn = 0; turn < 8; turn++) {
        size_t len = sizes[turn % 4];
        struct buffer buffer = buffer_new(turn < 4 ? FIRST : POOL, len);
        unsigned char *bytes = malloc(len);
        doing("unfinished", turn);
        buffer_fill(&buffer, 0, len, turn);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (check_rank == 0) {
            hold_back();
            CUDA(cuMemsetD8Async_((uintptr_t)buffer.start, (unsigned char)(turn + 1), len, NULL));
            MPI(MPI_Send(buffer.start, (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
            let_go();
        } else if (check_rank == 1) {
            MPI(MPI_Recv(buffer.start, (int)len, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            buffer_read(&buffer, 0, bytes, len);
            for (size_t at = 0; at < len; at++)
                if (!CHECK_EQ(bytes[at], turn + 1)) break;
        }
        free(bytes);
        buffer_free(&buffer);
    }
}

static void later(void)
{
    size_t len = 200000;
    struct buffer buffer = {HEAP, len, NULL};
    for (int round = 0; round < 4; round++) {
        doing("later", round);
        if (check_rank == 0) {
            if (round == 0) {
                cuda_begin();
                buffer = buffer_new(FIRST, len);
            }
            buffer_fill(&buffer, 0, len, (unsigned)round);
            MPI(MPI_Send(buffer.start, (int)len, MPI_BYTE, 1, round, MPI_COMM_WORLD));
        } else {
            if (round == 0) buffer = buffer_new(HEAP, len);
            if (round == 2) {
                buffer_free(&buffer);
                cuda_begin();
                buffer = buffer_new(FIRST, len);
            }
            MPI(MPI_Recv(buffer.start, (int)len, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            buffer_holds(&buffer, 0, len, (unsigned)round);
        }
    }
    buffer_free(&buffer);
}

static void host_only(void)
{
    for (size_t len = 1; len < 5000000; len *= 7) {
        for (enum kind from = HEAP; from <= MAPPED; from++) {
            for (enum kind to = HEAP; to <= MAPPED; to++) exchange(from, to, len, check_rank ^ 1, (int)(len % 1000));
        }
    }
}

static void killed(bool before)
{
    size_t len = 32 << 20;
    struct buffer buffer = buffer_new(FIRST, len);
    printf("rank %d pid %d\n", check_rank, (int)getpid());
    exchange(FIRST, FIRST, 500000, check_rank ^ 1, 5);
    exchange(FIRST, FIRST, 500000, check_rank ^ 1, 6);
    if (check_rank == 1) {
        MPI_Request request;
        char flag;
        MPI(MPI_Isend(buffer.start, (int)len, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request));
        MPI(MPI_Recv(&flag, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        raise(SIGKILL);
    } else {
        MPI_Request request;
        int over = 0;
        if (before) hold_back();
        MPI(MPI_Irecv(buffer.start, (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request));
        for (int turn = 0; turn < 20; turn++) MPI_Test(&request, &over, MPI_STATUS_IGNORE);
        MPI(MPI_Send("", 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        /* Now it learns that nobody is there. */
        MPI_Recv(&over, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("goes on with nobody\n");
    }
}

static void impossible(bool strided)
{
    size_t len = strided ? 1 << 20 : 100;
    struct buffer buffer = buffer_new(FIRST, len);
    MPI_Datatype type;
    MPI(MPI_Type_vector(1000, 1, 3, MPI_INT, &type));
    MPI(MPI_Type_commit(&type));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (check_rank == 0) {
        int code = strided ? MPI_Send(buffer.start, 1, type, 1, 1, MPI_COMM_WORLD) : MPI_Send(buffer.start, (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        printf("sent: %d\n", code);
    } else {
        char *plain_memory = malloc(1 << 20);
        MPI_Recv(plain_memory, 1 << 20, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("received\n");
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "grid";
    unsigned long number = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
    bool uses = strcmp(what, "none") != 0 && strcmp(what, "later") != 0, early = strcmp(what, "lazy") == 0;
    if (early) cuda_begin();
    check_start(&argc, &argv, "device", MPI_THREAD_SINGLE, 2);
    counters_begin();
    if (uses && !early) cuda_begin();
    if (strcmp(what, "grid") == 0)
        grid(number != 0 ? number : 8 << 20, argc > 3 ? strtoul(argv[3], NULL, 0) : 0);
    else if (strcmp(what, "types") == 0)
        types();
    else if (strcmp(what, "many") == 0)
        many((int)number);
    else if (strcmp(what, "anew") == 0)
        anew((int)number);
    else if (strcmp(what, "kinds") == 0)
        kinds();
    else if (strcmp(what, "reset") == 0)
        reset();
    else if (strcmp(what, "ended") == 0)
        grid(70000, 60000);
    else if (strcmp(what, "unfinished") == 0)
        unfinished();
    else if (strcmp(what, "later") == 0)
        later();
    else if (strcmp(what, "killed") == 0 || strcmp(what, "stopped") == 0)
        killed(strcmp(what, "stopped") == 0);
    else if (strcmp(what, "short") == 0 || strcmp(what, "strided") == 0)
        impossible(strcmp(what, "strided") == 0);
    else
        host_only();
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    counters_end();
    bool ended = strcmp(what, "ended") == 0;
    if (ended) cuda_reset();
    int status = check_finish();
    if (strcmp(what, "none") != 0 && !ended) cuda_end();
    return status;
}
