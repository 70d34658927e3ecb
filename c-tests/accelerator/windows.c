/* Windows, on memory of all kinds that are asked for.
 *
 *     windows KINDS KINDS [LONGEST]     of windows, and of local buffers: letters of h(eap), m(apped), p(inned),
 *                                       d(evice), o(ther device), u(nified: managed) and a(llocated of a pool) */
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

int main(int argc, char **argv)
{
    static const char letters[] = "hmpdoua";
    size_t longest = argc > 3 ? strtoul(argv[3], NULL, 0) : 100000;
    check_start(&argc, &argv, "windows", MPI_THREAD_SINGLE, 2);
    if (!CHECK(argc > 2)) return check_finish();
    cuda_begin();
    for (const char *window = argv[1]; *window != 0; window++)
        for (const char *local = argv[2]; *local != 0; local++)
            for (size_t len = 8; len <= longest; len = len * 60 + 5)
                windows((enum kind)(strchr(letters, *window) - letters), (enum kind)(strchr(letters, *local) - letters), len);
    int status = check_finish();
    cuda_end();
    return status;
}
