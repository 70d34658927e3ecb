/* Windows, on memory of all kinds that are asked for.
 *
 *     windows KINDS KINDS [LONGEST]     of windows, and of local buffers: letters of h(eap), m(apped), p(inned),
 *                                       d(evice), o(ther device), u(nified: managed) and a(llocated of a pool)
 *     windows all PAIRS                 all operations and epochs, with windows and buffers of these kinds
 *     windows others KINDS              windows that are not made of the program's memory, with buffers of these kinds
 *     windows early -                   a window that is older than the use of CUDA */
#include "cuda.h"

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

/* How an epoch begins and ends. */
enum epoch { FENCE, LOCK, EXCLUSIVE, ALL, PSCW, EPOCHS };
static const char *const epoch_names[EPOCHS] = {"fence", "shared lock", "exclusive lock", "lock all", "post and start"};

static MPI_Group everybody;

static void epoch_begin(enum epoch epoch, int target, MPI_Win window)
{
    switch (epoch) {
    case FENCE: MPI(MPI_Win_fence(0, window)); break;
    case LOCK: MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window)); break;
    case EXCLUSIVE: MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window)); break;
    case ALL: MPI(MPI_Win_lock_all(0, window)); break;
    default:
        MPI(MPI_Win_post(everybody, 0, window));
        MPI(MPI_Win_start(everybody, 0, window));
    }
}

static void epoch_end(enum epoch epoch, int target, MPI_Win window)
{
    switch (epoch) {
    case FENCE: MPI(MPI_Win_fence(0, window)); break;
    case LOCK:
    case EXCLUSIVE: MPI(MPI_Win_unlock(target, window)); break;
    case ALL: MPI(MPI_Win_unlock_all(window)); break;
    default:
        MPI(MPI_Win_complete(window));
        MPI(MPI_Win_wait(window));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static long long number_at(const struct buffer *buffer, size_t at, int size)
{
    int shorter = 0;
    long long longer = 0;
    buffer_read(buffer, at, size == 4 ? (void *)&shorter : &longer, (size_t)size);
    return size == 4 ? shorter : longer;
}

static void number_put(struct buffer *buffer, size_t at, int size, long long number)
{
    int shorter = (int)number;
    buffer_write(buffer, at, size == 4 ? (void *)&shorter : &number, (size_t)size);
}

/* All ranks work on the same number of one rank's, and on numbers of their own beside it. */
static void operations(MPI_Win window, struct buffer *memory, enum kind kind, enum epoch epoch, MPI_Datatype type, int size, int target)
{
    enum { TIMES = 4 };
    struct buffer origin = buffer_new(kind, 64), result = buffer_new(kind, 64), compare = buffer_new(kind, 64);
    const bool here = check_rank == target;
    doing(epoch_names[epoch], kind * 100 + size * 10 + target);
    /* A sum that each rank adds to; what it saw was one of the numbers on the way. */
    if (here) number_put(memory, 0, size, -3);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int turn = 0; turn < TIMES; turn++) {
        number_put(&origin, 0, size, 2);
        number_put(&result, 0, size, 77);
        epoch_begin(epoch, target, window);
        MPI(MPI_Fetch_and_op(origin.start, result.start, type, target, 0, MPI_SUM, window));
        epoch_end(epoch, target, window);
        long long seen = number_at(&result, 0, size);
        CHECK(seen >= -3 && (seen + 3) % 2 == 0 && seen < -3 + 2 * TIMES * check_size);
    }
    if (here) CHECK_EQ(number_at(memory, 0, size), -3 + 2 * TIMES * check_size);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    /* Several numbers at once, and one. */
    for (int count = 1; count <= 5; count += 4) {
        size_t at = 64;
        for (int index = 0; index < count; index++) {
            if (here) number_put(memory, at + (size_t)(index * size), size, 1000 + index);
            number_put(&origin, (size_t)(index * size), size, check_rank + index);
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        epoch_begin(epoch, target, window);
        MPI(MPI_Accumulate(origin.start, count, type, target, (MPI_Aint)at, count, type, MPI_SUM, window));
        epoch_end(epoch, target, window);
        long long all = (long long)check_size * (check_size - 1) / 2;
        for (int index = 0; here && index < count; index++)
            CHECK_EQ(number_at(memory, at + (size_t)(index * size), size), 1000 + index + all + (long long)check_size * index);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        /* The greatest, and what was there before. */
        epoch_begin(epoch, target, window);
        MPI(MPI_Get_accumulate(origin.start, count, type, result.start, count, type, target, (MPI_Aint)at, count, type, MPI_MAX, window));
        epoch_end(epoch, target, window);
        for (int index = 0; index < count; index++)
            CHECK_EQ(number_at(&result, (size_t)(index * size), size), 1000 + index + all + (long long)check_size * index);
        /* Read, with an operation that does nothing. */
        epoch_begin(epoch, target, window);
        MPI(MPI_Get_accumulate(NULL, 0, type, result.start, count, type, target, (MPI_Aint)at, count, type, MPI_NO_OP, window));
        epoch_end(epoch, target, window);
        CHECK_EQ(number_at(&result, 0, size), 1000 + all);
    }
    /* One of all wins. */
    if (here) number_put(memory, 128, size, -1);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    number_put(&origin, 0, size, check_rank);
    number_put(&compare, 0, size, -1);
    number_put(&result, 0, size, 77);
    if (size != 16) {
        epoch_begin(epoch, target, window);
        MPI(MPI_Compare_and_swap(origin.start, compare.start, result.start, type, target, 128, window));
        epoch_end(epoch, target, window);
        int won = number_at(&result, 0, size) == -1, all = 0;
        MPI(MPI_Allreduce(&won, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        CHECK_EQ(all, 1);
        long long winner = won ? check_rank : 0, found = 0;
        MPI(MPI_Allreduce(&winner, &found, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
        if (here) CHECK_EQ(number_at(memory, 128, size), found);
    }
    /* Replaced by the last. */
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    epoch_begin(epoch, target, window);
    MPI(MPI_Accumulate(origin.start, 1, type, target, 192 + 8 * check_rank, 1, type, MPI_REPLACE, window));
    epoch_end(epoch, target, window);
    for (int rank = 0; here && rank < check_size; rank++) CHECK_EQ(number_at(memory, 192 + 8 * (size_t)rank, size), rank);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    buffer_free(&origin);
    buffer_free(&result);
    buffer_free(&compare);
}

/* Every third of the elements, there and here, and the request of a put and of a get. */
static void derived(MPI_Win window, struct buffer *memory, enum kind kind, enum epoch epoch)
{
    enum { COUNT = 500, STRIDE = 3 };
    struct buffer local = buffer_new(kind, COUNT * STRIDE * 4);
    int peer = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
    int *numbers = calloc(COUNT * STRIDE, sizeof *numbers), *seen = calloc(COUNT * STRIDE, sizeof *seen);
    MPI_Datatype strided;
    doing("derived", kind * 10 + epoch);
    MPI(MPI_Type_vector(COUNT, 1, STRIDE, MPI_INT, &strided));
    MPI(MPI_Type_commit(&strided));
    for (int index = 0; index < COUNT * STRIDE; index++) numbers[index] = check_rank * 100000 + index;
    buffer_write(&local, 0, numbers, COUNT * STRIDE * 4);
    memset(seen, 0, COUNT * STRIDE * sizeof *seen);
    buffer_write(memory, 0, seen, COUNT * STRIDE * 4);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    epoch_begin(epoch, peer, window);
    MPI(MPI_Put(local.start, 1, strided, peer, 0, 1, strided, window));
    epoch_end(epoch, peer, window);
    buffer_read(memory, 0, seen, COUNT * STRIDE * 4);
    for (int index = 0; index < (COUNT - 1) * STRIDE; index++) CHECK_EQ(seen[index], index % STRIDE == 0 ? before * 100000 + index : 0);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    /* From its elements to a row here. */
    epoch_begin(epoch, peer, window);
    MPI(MPI_Get(local.start, COUNT, MPI_INT, peer, 0, 1, strided, window));
    epoch_end(epoch, peer, window);
    buffer_read(&local, 0, seen, COUNT * 4);
    for (int index = 0; index < COUNT; index++) CHECK_EQ(seen[index], check_rank * 100000 + index * STRIDE);
    /* Added to every third. */
    for (int index = 0; index < COUNT; index++) seen[index] = 7;
    buffer_write(&local, 0, seen, COUNT * 4);
    epoch_begin(epoch, peer, window);
    MPI(MPI_Accumulate(local.start, COUNT, MPI_INT, peer, 0, 1, strided, MPI_SUM, window));
    epoch_end(epoch, peer, window);
    buffer_read(memory, 0, seen, COUNT * STRIDE * 4);
    for (int index = 0; index < (COUNT - 1) * STRIDE; index++) CHECK_EQ(seen[index], index % STRIDE == 0 ? before * 100000 + index + 7 : 0);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (epoch == LOCK || epoch == EXCLUSIVE || epoch == ALL) {
        MPI_Request requests[2];
        epoch_begin(epoch, peer, window);
        MPI(MPI_Rput(local.start, COUNT, MPI_INT, peer, 8, COUNT, MPI_INT, window, &requests[0]));
        MPI(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        MPI(MPI_Win_flush(peer, window));
        MPI(MPI_Rget(local.start, COUNT, MPI_INT, peer, 8, COUNT, MPI_INT, window, &requests[1]));
        MPI(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        epoch_end(epoch, peer, window);
        buffer_read(&local, 0, seen, COUNT * 4);
        for (int index = 0; index < COUNT; index++) CHECK_EQ(seen[index], 7);
    }
    MPI(MPI_Type_free(&strided));
    free(numbers);
    free(seen);
    buffer_free(&local);
}

/* All operations, in epochs of all kinds. */
static void all_operations(enum kind window_kind, enum kind kind)
{
    static const int sizes[] = {4, 8};
    const MPI_Datatype types[] = {MPI_INT, MPI_LONG_LONG};
    struct buffer memory = buffer_new(window_kind, 1 << 16);
    MPI_Win window;
    MPI(MPI_Win_create(memory.start, 1 << 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI(MPI_Comm_group(MPI_COMM_WORLD, &everybody));
    for (enum epoch epoch = 0; epoch < EPOCHS; epoch++) {
        for (int type = 0; type < 2; type++) operations(window, &memory, kind, epoch, types[type], sizes[type], type % check_size);
        derived(window, &memory, kind, epoch);
    }
    MPI(MPI_Group_free(&everybody));
    MPI(MPI_Win_free(&window));
    buffer_free(&memory);
}

/* Windows of memory that MPI allocates, shared or not, or that comes later; buffers are anywhere. */
static void other_windows(enum kind kind)
{
    enum { LEN = 1 << 16 };
    for (int flavour = 0; flavour < 3; flavour++) {
        struct buffer memory = {HEAP, LEN, NULL}, device = buffer_new(kind, LEN), local = buffer_new(kind, LEN);
        int peer = (check_rank + 1) % check_size;
        MPI_Win window;
        MPI_Aint there = 0, own = 0;
        doing("allocated", flavour * 10 + kind);
        MPI(MPI_Comm_group(MPI_COMM_WORLD, &everybody));
        if (flavour == 0) MPI(MPI_Win_allocate(LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory.start, &window));
        if (flavour == 1) MPI(MPI_Win_allocate_shared(LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory.start, &window));
        if (flavour == 2) {
            MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
            MPI(MPI_Win_attach(window, device.start, LEN));
            MPI(MPI_Get_address(device.start, &own));
            MPI(MPI_Sendrecv(&own, 1, MPI_AINT, (check_rank + check_size - 1) % check_size, 1, &there, 1, MPI_AINT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else {
            operations(window, &memory, kind, ALL, MPI_INT, 4, 0);
            operations(window, &memory, kind, FENCE, MPI_LONG_LONG, 8, 1);
            derived(window, &memory, kind, ALL);
        }
        buffer_fill(&local, 0, LEN, 60 + (unsigned)check_rank);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        MPI(MPI_Win_lock_all(0, window));
        MPI(MPI_Put(local.start, LEN, MPI_BYTE, peer, there, LEN, MPI_BYTE, window));
        MPI(MPI_Win_flush_all(window));
        buffer_fill(&local, 0, LEN, 1);
        MPI(MPI_Get(local.start, LEN, MPI_BYTE, peer, there, LEN, MPI_BYTE, window));
        MPI(MPI_Win_unlock_all(window));
        buffer_holds(&local, 0, LEN, 60 + (unsigned)check_rank);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (flavour == 2) MPI(MPI_Win_detach(window, device.start));
        MPI(MPI_Group_free(&everybody));
        MPI(MPI_Win_free(&window));
        buffer_free(&device);
        buffer_free(&local);
    }
}

/* A window that was there before the program began to use CUDA. */
static void early_window(void)
{
    enum { LEN = 300000 };
    char *memory = malloc(LEN);
    int peer = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
    MPI_Win window;
    doing("early", 0);
    fill(memory, LEN, 9);
    MPI(MPI_Win_create(memory, LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    cuda_begin();
    struct buffer local = buffer_new(FIRST, LEN);
    buffer_fill(&local, 0, LEN, 80 + (unsigned)check_rank);
    MPI(MPI_Win_fence(0, window));
    MPI(MPI_Put(local.start, LEN, MPI_BYTE, peer, 0, LEN, MPI_BYTE, window));
    MPI(MPI_Win_fence(0, window));
    for (size_t index = 0; index < LEN; index++)
        if ((unsigned char)memory[index] != pattern(80 + (unsigned)before, index)) {
            check_report(__FILE__, __LINE__, "early", (long long)index, LEN);
            break;
        }
    MPI(MPI_Win_fence(0, window));
    MPI(MPI_Get(local.start, LEN, MPI_BYTE, peer, 0, LEN, MPI_BYTE, window));
    MPI(MPI_Win_fence(0, window));
    buffer_holds(&local, 0, LEN, 80 + (unsigned)check_rank);
    MPI(MPI_Win_free(&window));
    buffer_free(&local);
    free(memory);
}

int main(int argc, char **argv)
{
    static const char letters[] = "hmpdoua";
    size_t longest = argc > 3 ? strtoul(argv[3], NULL, 0) : 100000;
    check_start(&argc, &argv, "windows", MPI_THREAD_SINGLE, 2);
    if (!CHECK(argc > 2)) return check_finish();
    if (strcmp(argv[1], "early") == 0) {
        early_window();
        int status = check_finish();
        cuda_end();
        return status;
    }
    cuda_begin();
    if (strcmp(argv[1], "others") == 0)
        for (const char *local = argv[2]; *local != 0; local++) other_windows((enum kind)(strchr(letters, *local) - letters));
    else if (strcmp(argv[1], "all") == 0)
        for (const char *pair = argv[2]; *pair != 0 && pair[1] != 0; pair += 2)
            all_operations((enum kind)(strchr(letters, pair[0]) - letters), (enum kind)(strchr(letters, pair[1]) - letters));
    else for (const char *window = argv[1]; *window != 0; window++)
        for (const char *local = argv[2]; *local != 0; local++)
            for (size_t len = 8; len <= longest; len = len * 60 + 5)
                windows((enum kind)(strchr(letters, *window) - letters), (enum kind)(strchr(letters, *local) - letters), len);
    int status = check_finish();
    cuda_end();
    return status;
}
