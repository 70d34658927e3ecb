/* Host memory that messages were sent from, which the program gives back, and in whose place the driver puts memory of a
 * device: the first message from there is the device's.
 *
 *     reused ROUNDS LIBRARY
 *
 * LIBRARY has a variable `room`, of 8 MiB.
 *
 * Small messages go both ways ROUNDS times from each range while it is the host's: the script reads in the driver's
 * ledger how often it was asked about them. */
#define _GNU_SOURCE
#include "cuda.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "../cuda/driver.h"

enum { CHUNK = 2 << 20, ROOM = 4 * CHUNK, SMALL = 100, LONG = 300000, ATTEMPTS = 20 };

/* Where a range comes from, and how it goes. */
enum way { UNMAPPED, FREED, MOVED, DETACHED, SPLIT, UNLOADED, WAYS };
static const char *const names[WAYS] = {"munmap", "free", "mremap", "shmdt", "shmdt of several mappings", "dlclose"};

struct range {
    char *start; /* of all of it */
    char *used;  /* a chunk in it, as the driver cuts memory */
};

static const char *library;
static void *loaded;

static struct range take(enum way way)
{
    struct range range = {NULL, NULL};
    switch (way) {
    case UNMAPPED:
    case MOVED:
        range.start = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        break;
    case FREED: range.start = malloc(ROOM); break;
    case DETACHED:
    case SPLIT: {
        int segment = shmget(IPC_PRIVATE, ROOM, 0600);
        range.start = shmat(segment, NULL, 0);
        CHECK_EQ(shmctl(segment, IPC_RMID, NULL), 0);
        break;
    }
    case UNLOADED:
        loaded = dlopen(library, RTLD_NOW);
        CHECK(loaded != NULL);
        range.start = dlsym(loaded, "room");
        break;
    default: abort();
    }
    CHECK(range.start != NULL && range.start != MAP_FAILED);
    range.used = (char *)(((uintptr_t)range.start + CHUNK) / CHUNK * CHUNK);
    /* What is used is not in the first of the mappings. */
    if (way == SPLIT) CHECK_EQ(mprotect(range.start, 4096, PROT_READ), 0);
    return range;
}

static void give(enum way way, struct range range)
{
    static char *elsewhere;
    switch (way) {
    case UNMAPPED: CHECK_EQ(munmap(range.start, ROOM), 0); break;
    case FREED: free(range.start); break;
    case MOVED:
        if (elsewhere == NULL) elsewhere = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mremap(range.start, ROOM, ROOM, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
        break;
    case DETACHED:
    case SPLIT: CHECK_EQ(shmdt(range.start), 0); break;
    case UNLOADED: CHECK_EQ(dlclose(loaded), 0); break;
    default: abort();
    }
}

/* A message each way from and to buffers of this kind at this place. */
static void exchange(enum kind kind, char *start, size_t len, int peer, unsigned seed)
{
    struct buffer from = {kind, len, start}, to = {kind, len, start + CHUNK / 2};
    buffer_fill(&from, 0, len, seed + (unsigned)check_rank);
    buffer_fill(&to, 0, len, seed + 100);
    MPI(MPI_Sendrecv(from.start, (int)len, MPI_BYTE, peer, 1, to.start, (int)len, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
        MPI_STATUS_IGNORE));
    buffer_holds(&to, 0, len, seed + (unsigned)peer);
}

static CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
static CUresult (*unreserve)(CUdeviceptr, size_t);
static CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
static CUresult (*release)(CUmemGenericAllocationHandle);
static CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
static CUresult (*unmap)(CUdeviceptr, size_t);
static CUresult (*allow)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);

static void look_up(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&reserve = cuda_symbol(library, "cuMemAddressReserve");
    *(void **)&unreserve = cuda_symbol(library, "cuMemAddressFree");
    *(void **)&create = cuda_symbol(library, "cuMemCreate");
    *(void **)&release = cuda_symbol(library, "cuMemRelease");
    *(void **)&map = cuda_symbol(library, "cuMemMap");
    *(void **)&unmap = cuda_symbol(library, "cuMemUnmap");
    *(void **)&allow = cuda_symbol(library, "cuMemSetAccess");
    dlclose(library);
}

/* Host memory is used and given back, and the driver is given its place: 0 where somebody else was faster. */
static char *replaced(enum way way, int rounds, int peer)
{
    struct range range = take(way);
    /* The driver is asked about a library's data each time. */
    if (way == UNLOADED && rounds > 10) rounds = 10;
    for (int round = 0; round < rounds; round++) exchange(HEAP, range.used, SMALL, peer, (unsigned)round);
    exchange(HEAP, range.used, LONG, peer, 7);
    CUdeviceptr wish = (uintptr_t)range.used, found;
    give(way, range);
    CHECK_EQ(reserve(&found, CHUNK, 0, wish, 0), 0);
    if (found == wish) return range.used;
    CHECK_EQ(unreserve(found, CHUNK), 0);
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    library = argc > 2 ? argv[2] : "";
    check_start(&argc, &argv, "reused", MPI_THREAD_SINGLE, 2);
    int peer = check_rank ^ 1;
    /* So that `free` always unmaps what is so long. */
    CHECK_EQ(mallopt(M_MMAP_THRESHOLD, 1 << 20), 1);
    cuda_begin();
    look_up();
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (enum way way = UNMAPPED; way < WAYS; way++) {
        doing(names[way], 0);
        char *place = NULL;
        int both = 0;
        /* Both processes need one at a time, or the messages do not match. */
        for (int attempt = 0; attempt < ATTEMPTS && !both; attempt++) {
            if (place != NULL) CHECK_EQ(unreserve((uintptr_t)place, CHUNK), 0);
            place = replaced(way, rounds, peer);
            int mine = place != NULL;
            MPI(MPI_Allreduce(&mine, &both, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
        }
        CHECK(both);
        CUdeviceptr start = (uintptr_t)place;
        CUmemGenericAllocationHandle physical;
        CHECK_EQ(create(&physical, CHUNK, &properties, 0), 0);
        CHECK_EQ(map(start, CHUNK, 0, physical, 0), 0);
        CHECK_EQ(allow(start, CHUNK, &access, 1), 0);
        exchange(FIRST, place, SMALL, peer, 20);
        exchange(FIRST, place, LONG, peer, 30);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        CHECK_EQ(unmap(start, CHUNK), 0);
        CHECK_EQ(unreserve(start, CHUNK), 0);
        CHECK_EQ(release(physical), 0);
        printf("%s: replaced\n", names[way]);
    }
    int status = check_finish();
    cuda_end();
    return status;
}
