/* Device memory over smcuda, by the C functions: registered here, got there, from device to device and to host memory.
 *
 *     device smcuda all
 */
#include "side.h"

#include "../cuda/driver.h"

enum { BYTES = 1500000, TAG = 7 };

static long ended;
static int32_t last;

static void over(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)context, (void)module, (void)to;
    last = status;
    ended++;
}

static unsigned char byte_of(int rank, size_t at)
{
    return (unsigned char)(at * 13 + (at >> 9) + (size_t)rank * 101);
}

static void get(void *local, size_t length, const hawser_remote *remote, uint64_t offset)
{
    long before = ended;
    IS(0, side.table->get(side.module, side.to, local, length, remote, offset, over, NULL));
    UNTIL(ended == before + 1);
    IS(0, last);
}

int main(int argc, char **argv)
{
    static unsigned char host[BYTES], copy[BYTES];
    CUcontext context;
    CUdeviceptr source, target;
    hawser_memory memory, plain;
    hawser_remote mine[2], theirs[2];
    if (argc != 3) return 2;
    begin(argv[1]);
    CHECK(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHECK(cuMemAlloc_v2(&source, BYTES) == CUDA_SUCCESS && cuMemAlloc_v2(&target, BYTES) == CUDA_SUCCESS);
    for (size_t at = 0; at < BYTES; at++) host[at] = byte_of(me, at);
    CHECK(cuMemcpyHtoD_v2(source, host, BYTES) == CUDA_SUCCESS);
    start();
    CHECK((side.limits.flags & HAWSER_CAN_DEVICES) != 0);
    join();
    IS(0, side.table->register_device(side.module, side.to, (void *)source, BYTES, &memory));
    IS(0, side.table->register_memory(side.module, host, BYTES, HAWSER_READ | HAWSER_WRITE, &plain));
    IS(HAWSER_ERR_UNSUPPORTED, side.table->register_memory(side.module, (void *)source, BYTES, HAWSER_READ, &plain));
    IS(HAWSER_ERR_UNSUPPORTED, side.table->register_device(side.module, side.to, host, BYTES, &plain));
    IS(0, side.table->memory_key(side.module, memory, &mine[0]));
    IS(0, side.table->memory_key(side.module, plain, &mine[1]));
    CHECK(pair_swap(&two.pair, mine, theirs, sizeof mine) == 0);

    for (int round = 0; round < 3; round++) {
        /* From the peer's device to ours, to our host memory, and from its host memory to our device. */
        size_t offset = (size_t)round * 1000, length = BYTES - 2 * offset;
        get((void *)(target + offset), length, &theirs[0], offset);
        CHECK(cuMemcpyDtoH_v2(copy, target + offset, length) == CUDA_SUCCESS);
        for (size_t at = 0; at < length; at++) CHECK(copy[at] == byte_of(!me, offset + at));
        memset(copy, 0, BYTES);
        get(copy, length, &theirs[0], offset);
        for (size_t at = 0; at < length; at++) CHECK(copy[at] == byte_of(!me, offset + at));
        CHECK(cuMemsetD8_v2(target, 0, BYTES) == CUDA_SUCCESS);
        get((void *)target, length, &theirs[1], offset);
        CHECK(cuMemcpyDtoH_v2(copy, target, length) == CUDA_SUCCESS);
        for (size_t at = 0; at < length; at++) CHECK(copy[at] == byte_of(!me, offset + at));
    }
    /* What the processor would have to read. */
    hawser_fragment fragment;
    void *start_of;
    IS(HAWSER_ERR_UNSUPPORTED, side.table->prepare_src(side.module, 0, (void *)source, 8, &fragment, &start_of));
    IS(HAWSER_ERR_UNSUPPORTED, side.table->sendi(side.module, side.to, TAG, (void *)source, 8, NULL, 0));
    IS(HAWSER_ERR_UNSUPPORTED, side.table->sendi(side.module, side.to, TAG, NULL, 0, (void *)source, 8));
    IS(HAWSER_ERR_UNSUPPORTED, side.table->put(side.module, side.to, (void *)source, 8, &theirs[1], 0, over, NULL));
    IS(HAWSER_ERR_ACCESS, side.table->put(side.module, side.to, copy, 8, &theirs[0], 0, over, NULL));
    meet();
    IS(0, side.table->deregister_memory(side.module, memory));
    leave();
    CHECK(cuMemFree_v2(source) == CUDA_SUCCESS && cuMemFree_v2(target) == CUDA_SUCCESS);
    CHECK(cuCtxSetCurrent(NULL) == CUDA_SUCCESS && cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
    return end();
}
