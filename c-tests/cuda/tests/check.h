/* What the tests of the stand-in share: a program runs the case that it is told, and says what is wrong. */
#ifndef HAWSER_CUDA_CHECK_H
#define HAWSER_CUDA_CHECK_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../driver.h"

static int failures;

static inline void expect(const char *file, int line, const char *text, long long got, long long wanted)
{
    if (got == wanted) return;
    failures++;
    fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", file, line, text, got, wanted);
}

/* A call answers with this error; a value is this one. */
#define IS(got, wanted) expect(__FILE__, __LINE__, #got, (long long)(got), (long long)(wanted))
#define OK(call) IS(call, CUDA_SUCCESS)

struct test {
    const char *name;
    void (*run)(void);
};

static inline int run(const struct test *tests, size_t count, int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < count; i++) {
        if (strcmp(tests[i].name, argv[1]) != 0) continue;
        tests[i].run();
        return failures > 0;
    }
    for (size_t i = 0; argc <= 1 && i < count; i++) puts(tests[i].name);
    return argc > 1;
}
#define RUN(tests) return run(tests, sizeof(tests) / sizeof *(tests), argc, argv)

/* Initialises the driver and makes a device's primary context current. */
static inline CUcontext begin(CUdevice device)
{
    CUcontext context = NULL;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    return context;
}

static inline void end(CUdevice device)
{
    OK(cuCtxSetCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease_v2(device));
}

static inline void fill(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 7 + seed + (i >> 8));
}

static inline size_t wrong(const unsigned char *bytes, size_t size, unsigned seed)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++) count += bytes[i] != (unsigned char)(i * 7 + seed + (i >> 8));
    return count;
}

/* Puts a pattern on the device; counts what is not that pattern there. */
static inline void device_fill(CUdeviceptr address, size_t size, unsigned seed)
{
    unsigned char *bytes = malloc(size);
    fill(bytes, size, seed);
    OK(cuMemcpyHtoD_v2(address, bytes, size));
    OK(cuStreamSynchronize(NULL));
    free(bytes);
}

static inline size_t device_wrong(CUdeviceptr address, size_t size, unsigned seed)
{
    unsigned char *bytes = malloc(size);
    OK(cuMemcpyDtoH_v2(bytes, address, size));
    size_t count = wrong(bytes, size, seed);
    free(bytes);
    return count;
}

/* A gate: work of a stream behind it begins when it is opened. One for each program. */
static inline volatile uint32_t *gate_make(void)
{
    void *word = NULL;
    OK(cuMemHostAlloc(&word, 4, 0));
    *(volatile uint32_t *)word = 0;
    return word;
}
static inline void gate_close(volatile uint32_t *gate, CUstream stream)
{
    __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
    OK(cuStreamWaitValue32_v2(stream, (uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
}
static inline void gate_open(volatile uint32_t *gate) { __atomic_store_n(gate, 1, __ATOMIC_RELEASE); }

/* The signal that ends a child which does this. */
static inline int signal_of(void (*act)(void *), void *data)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        act(data);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

#endif
