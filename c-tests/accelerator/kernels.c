/* Messages beside kernels, which only a real device runs.
 *
 *     kernels [LONGEST]
 *
 * What a kernel in the default stream is still writing when the buffer is given to MPI is waited for, as copies that
 * Open MPI's own CUDA would make are; so is what was synchronised before, in any other stream. What was received is there
 * for a kernel in any stream. */
#include "cuda.h"

/* After so many nanoseconds, to[i] = from[i] + more. */
static const char code[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry late(.param .u64 to, .param .u64 from, .param .u32 count, .param .u32 more, .param .u64 wait)\n"
    "{\n"
    "    .reg .u64 %rd<10>;\n"
    "    .reg .u32 %r<8>;\n"
    "    .reg .pred %p<3>;\n"
    "    ld.param.u64 %rd1, [to];\n"
    "    ld.param.u64 %rd2, [from];\n"
    "    ld.param.u32 %r1, [count];\n"
    "    ld.param.u32 %r2, [more];\n"
    "    ld.param.u64 %rd3, [wait];\n"
    "    mov.u64 %rd4, %globaltimer;\n"
    "SPIN:\n"
    "    mov.u64 %rd5, %globaltimer;\n"
    "    sub.u64 %rd6, %rd5, %rd4;\n"
    "    setp.lt.u64 %p1, %rd6, %rd3;\n"
    "    @%p1 bra SPIN;\n"
    "    mov.u32 %r3, %tid.x;\n"
    "FILL:\n"
    "    setp.ge.u32 %p2, %r3, %r1;\n"
    "    @%p2 bra DONE;\n"
    "    mul.wide.u32 %rd7, %r3, 4;\n"
    "    add.u64 %rd8, %rd2, %rd7;\n"
    "    ld.global.u32 %r4, [%rd8];\n"
    "    add.u32 %r4, %r4, %r2;\n"
    "    add.u64 %rd9, %rd1, %rd7;\n"
    "    st.global.u32 [%rd9], %r4;\n"
    "    add.u32 %r3, %r3, 256;\n"
    "    bra FILL;\n"
    "DONE:\n"
    "    ret;\n"
    "}\n";

enum { LATE = 10000000, APART = 1 /* CU_STREAM_NON_BLOCKING */ };

static int (*cu_module)(void **, const void *);
static int (*cu_unload)(void *);
static int (*cu_function)(void **, void *, const char *);
static int (*cu_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*cu_stream)(void **, unsigned);
static int (*cu_stream_end)(void *);
static int (*cu_stream_wait)(void *);

static void *module, *late;

static void launch(void *stream, const struct buffer *to, const struct buffer *from, size_t len, unsigned more, address wait)
{
    address places[] = {(uintptr_t)to->start, (uintptr_t)from->start};
    unsigned count = (unsigned)(len / 4);
    void *arguments[] = {&places[0], &places[1], &count, &more, &wait};
    CUDA(cu_launch(late, 1, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
}

static bool holds(const struct buffer *buffer, size_t len, unsigned wanted)
{
    unsigned *numbers = (unsigned *)plain(len);
    buffer_read(buffer, 0, numbers, len);
    for (size_t index = 0; index < len / 4; index++)
        if (numbers[index] != wanted) return check_report(__FILE__, __LINE__, "a number", numbers[index], wanted);
    return true;
}

/* How rank 0 gives what its kernel writes, and how rank 1 takes it. */
static void pass(void *stream, size_t len, enum kind kind, int way, unsigned number)
{
    struct buffer zeros = buffer_new(FIRST, len), buffer = buffer_new(kind, len), result = buffer_new(FIRST, len);
    MPI_Request request;
    memset(plain(len), 0, len);
    buffer_write(&zeros, 0, plain(len), len);
    buffer_write(&buffer, 0, plain(len), len);
    buffer_write(&result, 0, plain(len), len);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (check_rank == 0) {
        launch(stream, &buffer, &zeros, len, number, LATE);
        if (stream != NULL) CUDA(cu_stream_wait(stream));
        if (way == 0) MPI(MPI_Send(buffer.start, (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
        if (way == 1) MPI(MPI_Ssend(buffer.start, (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
        if (way == 2) {
            MPI(MPI_Isend(buffer.start, (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request));
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
    } else if (check_rank == 1) {
        void *apart;
        CUDA(cu_stream(&apart, APART));
        if (way == 1) {
            MPI(MPI_Irecv(buffer.start, (int)len, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request));
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else {
            MPI(MPI_Recv(buffer.start, (int)len, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        launch(apart, &result, &buffer, len, 5, 0);
        CUDA(cu_stream_wait(apart));
        CUDA(cu_stream_end(apart));
        holds(&buffer, len, number);
        holds(&result, len, number + 5);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    CUDA(cu_synchronize());
    buffer_free(&zeros);
    buffer_free(&buffer);
    buffer_free(&result);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {8, 4000, 20000, 800000, 4 << 20, 64 << 20};
    static const enum kind kinds[] = {FIRST, POOL};
    size_t longest = argc > 1 ? strtoul(argv[1], NULL, 0) : 4 << 20;
    check_start(&argc, &argv, "kernels", MPI_THREAD_SINGLE, 2);
    cuda_begin();
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *streams[3] = {NULL, NULL, NULL};
    *(void **)&cu_module = cuda_symbol(library, "cuModuleLoadData");
    *(void **)&cu_unload = cuda_symbol(library, "cuModuleUnload");
    *(void **)&cu_function = cuda_symbol(library, "cuModuleGetFunction");
    *(void **)&cu_launch = cuda_symbol(library, "cuLaunchKernel");
    *(void **)&cu_stream = cuda_symbol(library, "cuStreamCreate");
    *(void **)&cu_stream_end = cuda_symbol(library, "cuStreamDestroy_v2");
    *(void **)&cu_stream_wait = cuda_symbol(library, "cuStreamSynchronize");
    CUDA(cu_module(&module, code));
    CUDA(cu_function(&late, module, "late"));
    CUDA(cu_stream(&streams[1], 0));
    CUDA(cu_stream(&streams[2], APART));
    unsigned number = 1;
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes && sizes[size] <= longest; size++)
        for (int kind = 0; kind < 2; kind++)
            for (int stream = 0; stream < 3; stream++)
                for (int way = 0; way < 3; way++) {
                    doing("kernels", (long long)(sizes[size] * 1000) + kind * 100 + stream * 10 + way);
                    pass(streams[stream], sizes[size], kinds[kind], way, number++);
                }
    CUDA(cu_stream_end(streams[1]));
    CUDA(cu_stream_end(streams[2]));
    CUDA(cu_unload(module));
    int status = check_finish();
    cuda_end();
    return status;
}
