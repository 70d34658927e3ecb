/* Long messages from and to memory that comes and goes, so that a transport which keeps memory registered must not take what
 * lies at an address now for what lay there before. Rank 0 sends, rank 1 receives; both do the same to their own buffers. Last
 * it says what the verbs component counted.
 *
 * usage: pinned same COUNT      one buffer, sent so often
 *        pinned many COUNT TURNS   so many buffers, each sent so often, in turn
 *        pinned fixed COUNT     one that rank 0 cannot write to
 *        pinned great COUNT     one, and in turn with it one that is twenty times as long
 *        pinned WAY COUNT       memory that is replaced at its address between two messages, so often, in one of these ways:
 *                               unmap, over (mapped over), move (moved away), empty (given back, and still mapped), segment,
 *                               thread (unmapped by another thread, while others map and unmap all the time), changed-madvise
 *                               and changed-sbrk (given back by a function that somebody changes after the first message) */
#define _GNU_SOURCE
#include "check.h"
#include "counters.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TAG = 9, SIZE = 1 << 20, GREAT = 20 * SIZE, MAPPERS = 1 };

/* What rank 0 has in its buffer already goes as it is. */
static void hand_over(unsigned char *buffer, int size, int turn)
{
    if (check_rank == 0) {
        MPI(MPI_Send(buffer, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
    } else {
        memset(buffer, 0, (size_t)size);
        MPI(MPI_Recv(buffer, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        VERIFY(buffer, (size_t)size, (unsigned)turn);
    }
}

static void pass_so_many(unsigned char *buffer, int size, int turn)
{
    doing("message", turn);
    if (check_rank == 0)
        fill(buffer, (size_t)size, (unsigned)turn);
    hand_over(buffer, size, turn);
}

static void pass(unsigned char *buffer, int turn) { pass_so_many(buffer, SIZE, turn); }

/* Shared memory that is mapped anew, to be read. */
static unsigned char *fixed(void)
{
    int file = memfd_create("fixed", 0);
    CHECK_EQ(ftruncate(file, SIZE), 0);
    unsigned char *all = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (all == MAP_FAILED)
        abort();
    fill(all, SIZE, 0);
    CHECK_EQ(munmap(all, SIZE), 0);
    all = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
    if (all == MAP_FAILED)
        abort();
    CHECK_EQ(close(file), 0);
    return all;
}

static unsigned char *map(void *at, int more)
{
    void *got = mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0);
    if (got == MAP_FAILED)
        abort();
    CHECK(at == NULL || got == at);
    return got;
}

static void *unmap(void *buffer)
{
    CHECK_EQ(munmap(buffer, SIZE), 0);
    return NULL;
}

static atomic_bool over;

static void *map_and_unmap(void *unused)
{
    while (!atomic_load(&over)) {
        unmap(map(NULL, 0));
        sched_yield();
    }
    return unused;
}

static unsigned char *segment(void *at)
{
    int id = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
    void *got = shmat(id, at, 0);
    CHECK_EQ(shmctl(id, IPC_RMID, NULL), 0);
    CHECK(at == NULL || got == at);
    return got;
}

static int other_madvise(void *at, size_t len, int advice) { return (int)syscall(SYS_madvise, at, len, advice); }

static void *other_sbrk(intptr_t more)
{
    char *end = (char *)syscall(SYS_brk, 0);
    return more == 0 || (char *)syscall(SYS_brk, end + more) == end + more ? end : (void *)-1;
}

/* Has a function of the C library go elsewhere, as libraries do that want to know when memory goes: movabs to r11, jmp there. */
static void change(const char *name, const void *to)
{
    unsigned char *code = dlsym(RTLD_DEFAULT, name), jump[13] = {0x49, 0xbb, [10] = 0x41, 0xff, 0xe3};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *first = (void *)((uintptr_t)code & ~(page - 1));
    memcpy(jump + 2, &to, sizeof to);
    CHECK_EQ(mprotect(first, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    memcpy(code, jump, sizeof jump);
    CHECK_EQ(mprotect(first, 2 * page, PROT_READ | PROT_EXEC), 0);
}

/* The end of the heap, given back and taken anew. What others took behind it meanwhile stays, and another end is taken. */
static unsigned char *heap_anew(unsigned char *buffer)
{
    if ((unsigned char *)sbrk(0) == buffer + SIZE)
        CHECK(sbrk(-SIZE) != (void *)-1);
    void *got = sbrk(SIZE);
    CHECK(got != (void *)-1);
    return got;
}

/* Other memory at the same address; or, if it is given back, the same mapping with other pages. */
static void replace(const char *way, unsigned char *buffer)
{
    pthread_t thread;
    if (strcmp(way, "unmap") == 0) {
        unmap(buffer);
        map(buffer, MAP_FIXED_NOREPLACE);
    } else if (strcmp(way, "over") == 0) {
        map(buffer, MAP_FIXED);
    } else if (strcmp(way, "move") == 0) {
        void *moved = mremap(buffer, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, map(NULL, 0));
        CHECK(moved != MAP_FAILED);
        map(buffer, MAP_FIXED_NOREPLACE);
        unmap(moved);
    } else if (strcmp(way, "empty") == 0 || strcmp(way, "changed-madvise") == 0) {
        CHECK_EQ(madvise(buffer, SIZE, MADV_DONTNEED), 0);
    } else if (strcmp(way, "segment") == 0) {
        CHECK_EQ(shmdt(buffer), 0);
        CHECK(segment(buffer) == buffer);
    } else {
        CHECK_EQ(pthread_create(&thread, NULL, unmap, buffer), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        /* Another thread may have memory there for a moment. */
        while (mmap(buffer, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != buffer)
            CHECK_EQ(errno, EEXIST);
    }
}

int main(int argc, char **argv)
{
    pthread_t mappers[MAPPERS];
    check_start(&argc, &argv, "pinned", MPI_THREAD_SERIALIZED, 2);
    const char *way = argc > 2 ? argv[1] : "same";
    int count = argc > 2 ? atoi(argv[2]) : 200, turns = argc > 3 ? atoi(argv[3]) : 1;
    bool is_threaded = strcmp(way, "thread") == 0, is_many = strcmp(way, "many") == 0;
    counters_begin("btl_verbs_");
    for (int i = 0; is_threaded && i < MAPPERS; i++)
        CHECK_EQ(pthread_create(&mappers[i], NULL, map_and_unmap, NULL), 0);
    if (is_many) {
        unsigned char *buffers[count];
        for (int i = 0; i < count; i++)
            buffers[i] = map(NULL, 0);
        for (int i = 0; i < count * turns; i++)
            pass(buffers[i % count], i);
    } else if (strcmp(way, "fixed") == 0) {
        unsigned char *buffer = check_rank == 0 ? fixed() : map(NULL, 0);
        for (int i = 0; i < count; i++) {
            doing("message", i);
            hand_over(buffer, SIZE, 0);
        }
    } else if (strcmp(way, "great") == 0) {
        unsigned char *buffer = map(NULL, 0);
        unsigned char *great = mmap(NULL, GREAT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (great == MAP_FAILED)
            abort();
        for (int i = 0; i < count; i++) {
            pass(buffer, i);
            pass_so_many(great, GREAT, i);
        }
    } else {
        bool is_heap = strcmp(way, "changed-sbrk") == 0;
        unsigned char *buffer = strcmp(way, "segment") == 0 ? segment(NULL) : is_heap ? sbrk(SIZE) : map(NULL, 0);
        for (int i = 0; i < count; i++) {
            pass(buffer, i);
            if (i == 0 && is_heap)
                change("sbrk", (const void *)(uintptr_t)other_sbrk);
            if (i == 0 && strcmp(way, "changed-madvise") == 0)
                change("madvise", (const void *)(uintptr_t)other_madvise);
            if (is_heap)
                buffer = heap_anew(buffer);
            else if (strcmp(way, "same") != 0)
                replace(way, buffer);
        }
    }
    atomic_store(&over, true);
    for (int i = 0; is_threaded && i < MAPPERS; i++)
        CHECK_EQ(pthread_join(mappers[i], NULL), 0);
    counters_print();
    return check_finish();
}
