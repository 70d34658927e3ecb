/* Atomic operations on the memory of peers by the provider gni, one subject a run, between two processes; or within one,
 * between two endpoints and of one to itself.
 *
 *     atomics SUBJECT apart|together|self offsets|addresses
 */

#include <complex.h>
#include <pthread.h>

#include "pair.h"

enum { ROOM = 1 << 16, VALUES = 5, OPERATIONS = 20, DIFFERENCE = 19 };

static unsigned char *memory;
static struct region region;
static struct far far;

/* What each operation makes of a value. Only what the provider has is asked for. */
#define LOGIC(T)                                                                                       \
    case FI_SUM: return (T) (old + with);                                                              \
    case DIFFERENCE: return (T) (old - with);                                                          \
    case FI_PROD: return (T) (old * with);                                                             \
    case FI_LOR: return (T) (old != 0 || with != 0);                                                   \
    case FI_LAND: return (T) (old != 0 && with != 0);                                                  \
    case FI_LXOR: return (T) ((old != 0) != (with != 0));                                              \
    case FI_ATOMIC_WRITE: return with;                                                                 \
    case FI_CSWAP: return compared == old ? with : old;                                                \
    case FI_CSWAP_NE: return compared != old ? with : old;
#define ORDER(T)                                                                                       \
    case FI_MIN: return with < old ? with : old;                                                       \
    case FI_MAX: return with > old ? with : old;                                                       \
    case FI_CSWAP_LE: return compared <= old ? with : old;                                             \
    case FI_CSWAP_LT: return compared < old ? with : old;                                              \
    case FI_CSWAP_GE: return compared >= old ? with : old;                                             \
    case FI_CSWAP_GT: return compared > old ? with : old;
#define BITS(T)                                                                                        \
    case FI_BOR: return (T) (old | with);                                                              \
    case FI_BAND: return (T) (old & with);                                                             \
    case FI_BXOR: return (T) (old ^ with);                                                             \
    case FI_MSWAP: return (T) ((with & compared) | (old & ~compared));
#define EXPECT(NAME, T, ...)                                                                           \
    static T NAME(int operation, T old, T with, T compared)                                            \
    {                                                                                                  \
        (void) compared;                                                                               \
        switch (operation) {                                                                           \
            __VA_ARGS__                                                                                \
        default: return old;                                                                           \
        }                                                                                              \
    }

/* Sums of signed numbers go round. */
#pragma GCC diagnostic ignored "-Wfloat-equal"
EXPECT(i8, int8_t, LOGIC(int8_t) ORDER(int8_t) BITS(int8_t))
EXPECT(u8, uint8_t, LOGIC(uint8_t) ORDER(uint8_t) BITS(uint8_t))
EXPECT(i16, int16_t, LOGIC(int16_t) ORDER(int16_t) BITS(int16_t))
EXPECT(u16, uint16_t, LOGIC(uint16_t) ORDER(uint16_t) BITS(uint16_t))
EXPECT(i32, int32_t, LOGIC(int32_t) ORDER(int32_t) BITS(int32_t))
EXPECT(u32, uint32_t, LOGIC(uint32_t) ORDER(uint32_t) BITS(uint32_t))
EXPECT(i64, int64_t, LOGIC(int64_t) ORDER(int64_t) BITS(int64_t))
EXPECT(u64, uint64_t, LOGIC(uint64_t) ORDER(uint64_t) BITS(uint64_t))
EXPECT(i128, __int128, LOGIC(__int128) ORDER(__int128) BITS(__int128))
EXPECT(u128, unsigned __int128, LOGIC(unsigned __int128) ORDER(unsigned __int128) BITS(unsigned __int128))
EXPECT(f32, float, LOGIC(float) ORDER(float))
EXPECT(f64, double, LOGIC(double) ORDER(double))
EXPECT(c32, float complex, LOGIC(float complex))
EXPECT(c64, double complex, LOGIC(double complex))
EXPECT(ld, long double, LOGIC(long double))
EXPECT(cld, long double complex, LOGIC(long double complex))

/* Places 14 and 15 are the integers of 128 bits in both libfabrics. */
static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16, 16, 32, 16, 16};
enum { TYPES = sizeof(sizes) / sizeof(*sizes) };

/* One value after the other, all small numbers. */
static void set(int type, void *to, int index, int number)
{
    switch (type) {
#define SET(CODE, T) case CODE: ((T *) to)[index] = (T) number; break;
    SET(0, int8_t) SET(1, uint8_t) SET(2, int16_t) SET(3, uint16_t) SET(4, int32_t) SET(5, uint32_t) SET(6, int64_t) SET(7, uint64_t)
    SET(8, float) SET(9, double) SET(14, __int128) SET(15, unsigned __int128)
    case 10: ((float complex *) to)[index] = (float) number + 2.0f * I; break;
    case 11: ((double complex *) to)[index] = number + 2.0 * I; break;
    case 12: ((long double *) to)[index] = number; break;
    case 13: ((long double complex *) to)[index] = number + 2.0L * I; break;
    }
}

/* Whether a value is what the operation makes of three others. */
static int fits(int type, int operation, const void *found, const void *old, const void *with, const void *compared, int index)
{
    switch (type) {
#define FITS(CODE, NAME, T)                                                                                             \
    case CODE:                                                                                                          \
        return ((const T *) found)[index] == NAME(operation, ((const T *) old)[index], ((const T *) with)[index], ((const T *) compared)[index]);
    FITS(0, i8, int8_t) FITS(1, u8, uint8_t) FITS(2, i16, int16_t) FITS(3, u16, uint16_t) FITS(4, i32, int32_t) FITS(5, u32, uint32_t)
    FITS(6, i64, int64_t) FITS(7, u64, uint64_t) FITS(8, f32, float) FITS(9, f64, double) FITS(10, c32, float complex)
    FITS(11, c64, double complex) FITS(12, ld, long double) FITS(13, cld, long double complex) FITS(14, i128, __int128) FITS(15, u128, unsigned __int128)
    }
    return 0;
}

enum form { BASE, FETCH, COMPARE };

/* Which operations there are for which values. */
static int exists(int type, int operation, enum form form)
{
    int compares = operation >= FI_CSWAP && operation <= FI_MSWAP;
    int is_of_bits = operation == FI_BOR || operation == FI_BAND || operation == FI_BXOR || operation == FI_MSWAP;
    int is_of_order = operation <= FI_MAX || (operation >= FI_CSWAP_LE && operation <= FI_CSWAP_GT);
    if (compares != (form == COMPARE) || (operation == FI_ATOMIC_READ && form != FETCH))
        return 0;
    if (type == FI_LONG_DOUBLE || type == FI_LONG_DOUBLE_COMPLEX)
        return operation == FI_ATOMIC_READ || operation == FI_ATOMIC_WRITE;
    if (type >= FI_FLOAT && type <= FI_DOUBLE_COMPLEX && is_of_bits)
        return 0;
    return !(is_of_order && (type == FI_FLOAT_COMPLEX || type == FI_DOUBLE_COMPLEX));
}

/* What the calls that ask say of all there is and of what there is not. */
static void questions(void)
{
    static int (*const valid[])(struct fid_ep *, enum fi_datatype, enum fi_op, size_t *) = {fi_atomicvalid, fi_fetch_atomicvalid, fi_compare_atomicvalid};
    static const uint64_t flags[] = {0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC};
    for (int type = 0; type <= TYPES + 5; type++)
        for (int operation = 0; operation <= OPERATIONS; operation++)
            for (int form = BASE; form <= COMPARE; form++) {
                int is_there = type < TYPES && operation < OPERATIONS && exists(type, operation, form);
                size_t count = 0;
                struct fi_atomic_attr attr = {0};
                IS(valid[form](here->ep, type, operation, &count), is_there ? 0 : -FI_EOPNOTSUPP);
                IS(fi_query_atomic(domain, type, operation, &attr, flags[form]), is_there ? 0 : -FI_EOPNOTSUPP);
                IS(attr.count, count);
                IS(count, is_there ? 4096 / sizes[type] : 0);
                IS(attr.size, is_there ? sizes[type] : 0);
            }
    struct fi_atomic_attr attr;
    IS(fi_query_atomic(domain, FI_UINT64, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC), -FI_EBADFLAGS);
    IS(fi_query_atomic(domain, FI_UINT64, FI_SUM, &attr, FI_TAGGED), -FI_EOPNOTSUPP);
    IS(fi_query_atomic(domain, FI_UINT64, FI_SUM, NULL, 0), -FI_EINVAL);
    IS(fi_atomicvalid(here->ep, FI_UINT64, FI_SUM, NULL), -FI_EINVAL);
}

/* Every operation on every type, aligned and not, in all forms. */
static void arithmetic(void)
{
    struct end *to = receiver(0), *from = sender(0);
    static _Alignas(32) unsigned char old[VALUES * 32], with[VALUES * 32], compared[VALUES * 32], was[VALUES * 32], is[VALUES * 32];
    static const int numbers[3][VALUES] = {{5, 0, 7, 6, 3}, {3, 4, 7, 0, 9}, {5, 1, 6, 6, 4}};
    for (int type = 0; type < TYPES; type++)
        for (int operation = 0; operation < OPERATIONS; operation++)
            for (int form = BASE; form <= COMPARE; form++)
                for (int offset = 0; offset <= 1; offset++) {
                    size_t size = sizes[type] * VALUES;
                    uint64_t place = far.base + 64 + offset;
                    memset(was, 0, sizeof(was));
                    memset(old, 0, sizeof(old));
                    for (int i = 0; i < VALUES; i++) {
                        set(type, old, i, numbers[0][i]);
                        set(type, with, i, numbers[1][i]);
                        set(type, compared, i, numbers[2][i]);
                    }
                    if (!exists(type, operation, form) || !from)
                        continue;
                    fi_addr_t peer = from->peer;
                    POST(fi_inject_write(from->ep, old, size, peer, place, far.key));
                    if (form == BASE)
                        POST(fi_atomic(from->ep, with, VALUES, NULL, peer, place, far.key, type, operation, was));
                    else if (form == FETCH)
                        POST(fi_fetch_atomic(from->ep, operation == FI_ATOMIC_READ ? NULL : with, VALUES, NULL, was, NULL, peer, place, far.key, type, operation, was));
                    else
                        POST(fi_compare_atomic(from->ep, with, VALUES, NULL, compared, NULL, was, NULL, peer, place, far.key, type, operation, was));
                    struct fi_cq_tagged_entry entry = next(from->tx, NULL);
                    IS(entry.flags, FI_ATOMIC | (form == BASE ? FI_WRITE : FI_READ));
                    HOLDS(entry.op_context == was);
                    POST(fi_read(from->ep, is, size, NULL, peer, place, far.key, NULL));
                    next(from->tx, NULL);
                    int good = form == BASE ? 1 : memcmp(was, old, size) == 0;
                    for (int i = 0; i < VALUES; i++)
                        good &= fits(type, operation, is, old, with, compared, i);
                    if (!good)
                        printf("type %d operation %d form %d offset %d\n", type, operation, form, offset);
                    HOLDS(good);
                }
    meet();
    if (to)
        HOLDS(memory[0] == 0 && memory[63] == 0 && memory[64 + 1 + 32 * VALUES] == 0);
}

/* All calls, with pieces on both sides. */
static void calls(void)
{
    struct end *to = receiver(0), *from = sender(0);
    static uint32_t with[6] = {1, 2, 3, 4, 5, 6}, compared[6] = {1, 2, 0, 4, 0, 6}, was[6];
    static int context;
    struct fi_ioc withs[] = {{with, 1}, {with + 1, 0}, {with + 1, 5}}, others[] = {{compared, 6}}, results[] = {{was, 4}, {was + 4, 2}};
    struct fi_rma_ioc there[] = {{far.base, 2, far.key}, {far.base + 400, 3, far.key}, {far.base + 800, 1, far.key}};
    struct fi_msg_atomic message = {.msg_iov = withs, .iov_count = 3, .rma_iov = there, .rma_iov_count = 3, .datatype = FI_UINT32, .op = FI_SUM, .context = &context};
    if (from) {
        fi_addr_t peer = message.addr = from->peer;
        POST(fi_atomicv(from->ep, withs, NULL, 3, peer, far.base + 1200, far.key, FI_UINT32, FI_SUM, &context));
        POST(fi_inject_atomic(from->ep, with, 6, peer, far.base + 1200, far.key, FI_UINT32, FI_SUM));
        POST(fi_atomicmsg(from->ep, &message, 0));
        POST(fi_atomicmsg(from->ep, &message, FI_INJECT | FI_COMPLETION | FI_FENCE));
        POST(fi_fetch_atomicv(from->ep, withs, NULL, 3, results, NULL, 2, peer, far.base + 1200, far.key, FI_UINT32, FI_PROD, &context));
        for (int i = 0; i < 4; i++)
            HOLDS(next(from->tx, NULL).op_context == &context);
        for (uint32_t i = 0; i < 6; i++)
            IS(was[i], 2 * (i + 1));
        POST(fi_fetch_atomicmsg(from->ep, &message, results, NULL, 2, 0));
        next(from->tx, NULL);
        for (uint32_t i = 0; i < 6; i++)
            IS(was[i], 2 * (i + 1));
        message.op = FI_ATOMIC_READ;
        message.iov_count = 0;
        POST(fi_fetch_atomicmsg(from->ep, &message, results, NULL, 2, 0));
        next(from->tx, NULL);
        for (uint32_t i = 0; i < 6; i++)
            IS(was[i], 3 * (i + 1));
        POST(fi_inject_write(from->ep, with, sizeof(with), peer, far.base + 1600, far.key));
        POST(fi_compare_atomicv(from->ep, withs, NULL, 3, others, NULL, 1, results, NULL, 2, peer, far.base + 1600, far.key, FI_UINT32, FI_MSWAP, &context));
        next(from->tx, NULL);
        HOLDS(memcmp(was, with, sizeof(was)) == 0);
        message.op = FI_CSWAP_NE;
        message.iov_count = 3;
        POST(fi_compare_atomicmsg(from->ep, &message, others, NULL, 1, results, NULL, 2, 0));
        next(from->tx, NULL);
        for (uint32_t i = 0; i < 6; i++)
            IS(was[i], 3 * (i + 1));
    }
    meet();
    if (to) {
        uint32_t *at = (uint32_t *) memory;
        HOLDS(at[0] == 1 && at[1] == 2 && at[2] == 0 && at[100] == 3 && at[102] == 5 && at[103] == 0 && at[200] == 6 && at[201] == 0);
        for (uint32_t i = 0; i < 6; i++)
            IS(at[300 + i], 2 * (i + 1) * (i + 1));
        IS(fi_cntr_read(to->remote_writes), 5);
        IS(fi_cntr_read(to->remote_reads), 5);
    }
    if (from) {
        IS(fi_cntr_read(from->writes), 5);
        IS(fi_cntr_read(from->reads), 5);
        /* What cannot be. */
        static unsigned char many[8192];
        fi_addr_t peer = from->peer;
        IS(fi_atomic(from->ep, with, 1, NULL, peer, far.base, far.key, FI_UINT32, FI_ATOMIC_READ, NULL), -FI_EOPNOTSUPP);
        IS(fi_atomic(from->ep, with, 1, NULL, peer, far.base, far.key, FI_FLOAT, FI_BOR, NULL), -FI_EOPNOTSUPP);
        IS(fi_atomic(from->ep, with, 1, NULL, peer, far.base, far.key, 99, FI_SUM, NULL), -FI_EOPNOTSUPP);
        IS(fi_atomic(from->ep, with, 1, NULL, peer, far.base, far.key, FI_UINT32, 99, NULL), -FI_EOPNOTSUPP);
        IS(fi_atomic(from->ep, many, 8192, NULL, peer, far.base, far.key, FI_UINT8, FI_SUM, NULL), -FI_EMSGSIZE);
        HOLDS(fi_atomic(from->ep, many, SIZE_MAX / 2, NULL, peer, far.base, far.key, FI_UINT64, FI_SUM, NULL) < 0);
        IS(fi_inject_atomic(from->ep, many, 1000, peer, far.base, far.key, FI_UINT8, FI_SUM), -FI_EINVAL);
        IS(fi_atomic(from->ep, NULL, 1, NULL, peer, far.base, far.key, FI_UINT32, FI_SUM, NULL), -FI_EINVAL);
        IS(fi_fetch_atomic(from->ep, with, 1, NULL, NULL, NULL, peer, far.base, far.key, FI_UINT32, FI_SUM, NULL), -FI_EINVAL);
        IS(fi_fetch_atomicv(from->ep, withs, NULL, 3, results, NULL, 1, peer, far.base, far.key, FI_UINT32, FI_SUM, NULL), -FI_EINVAL);
        there[2].count = 2;
        message.op = FI_SUM;
        IS(fi_atomicmsg(from->ep, &message, 0), -FI_EINVAL);
        IS(fi_atomicmsg(from->ep, &message, FI_REMOTE_CQ_DATA), -FI_EINVAL);
        IS(fi_atomicmsg(from->ep, NULL, 0), -FI_EINVAL);
        there[2].count = 1;
        IS(fi_atomicmsg(from->ep, &message, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
    }
    meet();
}

/* Access that was not given, places outside: nothing is changed then, not even in the places that are inside. */
static void refusals(void)
{
    struct end *to = receiver(0), *from = sender(0);
    struct region only[] = {offer(memory + 8000, 64, FI_REMOTE_READ, 501), offer(memory + 9000, 64, FI_REMOTE_WRITE, 502)};
    struct far reads = exchange(&only[0]), writes = exchange(&only[1]);
    uint64_t one = 1, was = 0;
    if (from) {
        struct fi_ioc with = {&one, 1};
        struct fi_ioc two = {(uint64_t[]){1, 1}, 2};
        struct fi_rma_ioc there[] = {{far.base, 1, far.key}, {far.base + ROOM - 4, 1, far.key}};
        struct fi_msg_atomic message = {.msg_iov = &two, .iov_count = 1, .addr = from->peer, .rma_iov = there, .rma_iov_count = 2, .datatype = FI_UINT64, .op = FI_SUM, .context = &one};
        const int reasons[] = {FI_EACCES, FI_EACCES, FI_EACCES, FI_EACCES, FI_EINVAL, FI_ENOKEY};
        for (int i = 0; i < 6; i++) {
            fi_addr_t peer = from->peer;
            ssize_t posted = 0;
            if (i == 0)
                posted = fi_atomic(from->ep, &one, 1, NULL, peer, reads.base, reads.key, FI_UINT64, FI_SUM, &one);
            else if (i == 1)
                posted = fi_fetch_atomic(from->ep, &one, 1, NULL, &was, NULL, peer, reads.base, reads.key, FI_UINT64, FI_SUM, &one);
            else if (i == 2)
                posted = fi_fetch_atomic(from->ep, &one, 1, NULL, &was, NULL, peer, writes.base, writes.key, FI_UINT64, FI_SUM, &one);
            else if (i == 3)
                posted = fi_compare_atomic(from->ep, &one, 1, NULL, &one, NULL, &was, NULL, peer, writes.base, writes.key, FI_UINT64, FI_CSWAP, &one);
            else if (i == 4)
                posted = fi_atomicmsg(from->ep, &message, 0);
            else
                posted = fi_atomicv(from->ep, &with, NULL, 1, peer, far.base, 0x1234567, FI_UINT64, FI_SUM, &one);
            NEED(posted);
            struct fi_cq_err_entry failed = next_error(from->tx);
            HOLDS(failed.op_context == &one && failed.err == FI_EACCES && failed.flags & FI_ATOMIC);
            IS(failed.prov_errno, reasons[i]);
        }
        POST(fi_fetch_atomic(from->ep, NULL, 1, NULL, &was, NULL, from->peer, reads.base, reads.key, FI_UINT64, FI_ATOMIC_READ, &one));
        POST(fi_atomic(from->ep, &one, 1, NULL, from->peer, writes.base, writes.key, FI_UINT64, FI_SUM, &one));
        for (int i = 0; i < 2; i++)
            HOLDS(next(from->tx, NULL).op_context == &one);
    }
    meet();
    if (to) {
        for (size_t i = 0; i < ROOM; i++)
            NEED(memory[i] != (i == 9000));
    }
    for (int i = 0; i < 2; i++)
        IS(fi_close(&only[i].mr->fid), 0);
}

enum { TURNS = 20000 };

static void *add(void *at)
{
    for (int i = 0; i < TURNS; i++)
        __atomic_fetch_add((uint64_t *) at, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Peers, oneself and the program's own threads add to one number: nothing is lost. */
static void sums(void)
{
    struct end *to = receiver(0), *from = sender(0);
    uint64_t one = 1, *at = (uint64_t *) memory, last = 0;
    pthread_t thread;
    int ended = 0, posted = 0;
    if (to)
        NEED(pthread_create(&thread, NULL, add, at));
    while (from && ended < 2 * TURNS) {
        static uint64_t was[64];
        while (posted < 2 * TURNS && posted - ended < 60) {
            ssize_t code = posted & 1 ? fi_atomic(from->ep, &one, 1, NULL, from->peer, far.base, far.key, FI_UINT64, FI_SUM, NULL)
                                      : fi_fetch_atomic(from->ep, &one, 1, NULL, &was[posted % 64], NULL, from->peer, far.base, far.key, FI_UINT64, FI_SUM, &was[posted % 64]);
            if (code == -FI_EAGAIN)
                break;
            NEED(code);
            posted++;
        }
        struct fi_cq_tagged_entry entry;
        if (fi_cq_read(from->tx, &entry, 1) == 1) {
            ended++;
            if (entry.op_context) {
                uint64_t seen = *(uint64_t *) entry.op_context;
                NEED(ended > 2 && seen <= last);
                last = seen;
            }
        }
    }
    meet();
    if (to) {
        NEED(pthread_join(thread, NULL));
        IS(*at, 3 * TURNS);
    }
}

static volatile int is_over;

/* Values that no processor exchanges at once. */
static void *work(void *of)
{
    struct end *end = of;
    complex double values[200] = {0};
    struct fi_cq_tagged_entry entry;
    while (!is_over) {
        fi_atomic(end->ep, values, 200, NULL, end->peer, far.base, far.key, FI_DOUBLE_COMPLEX, FI_SUM, NULL);
        while (fi_cq_read(end->tx, &entry, 1) == 1)
            ;
    }
    return NULL;
}

/* A child of fork(2) has the same done in what it opens itself, whatever the threads of its parent held when it was made. */
static int be_child(void)
{
    memset(ends, 0, sizeof(ends));
    begin("self");
    struct region own = offer(memory, ROOM, ANY_ACCESS, 43);
    complex double value = 1;
    NEED(fi_atomic(here->ep, &value, 1, NULL, here->peer, mr_mode == BY_ADDRESS ? (uintptr_t) memory : 0, fi_mr_key(own.mr), FI_DOUBLE_COMPLEX, FI_SUM, NULL));
    next(here->tx, NULL);
    IS(fi_close(&own.mr->fid), 0);
    close_end(here);
    close_domain();
    return wrong != 0;
}

static void forked(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        NEED(pthread_create(&threads[i], NULL, work, &ends[i]));
    for (int round = 0; round < 100 && wrong == 0; round++) {
        pid_t heir = fork();
        NEED(heir < 0);
        if (heir == 0)
            _exit(be_child());
        int status;
        NEED(waitpid(heir, &status, 0) != heir);
        IS(status, 0);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        NEED(pthread_join(threads[i], NULL));
}

int main(int argc, char **argv)
{
    static const struct one_case all[] = {
        {"questions", questions}, {"arithmetic", arithmetic}, {"calls", calls}, {"refusals", refusals},
        {"sums", sums}, {"forked", forked},
    };
    if (argc < 4)
        return 2;
    setbuf(stdout, NULL);
    caps = FI_MSG | FI_RMA | FI_ATOMIC;
    mr_mode = strcmp(argv[3], "addresses") == 0 ? BY_ADDRESS : 0;
    begin(argv[2]);
    memory = aligned_alloc(64, ROOM);
    memset(memory, 0, ROOM);
    region = offer(memory, ROOM, ANY_ACCESS, 42);
    far = exchange(&region);
    RUN(all, argv[1]);
    meet();
    IS(fi_close(&region.mr->fid), 0);
    int status = end();
    free(memory);
    return status;
}
