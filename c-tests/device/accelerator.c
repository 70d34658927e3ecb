/* A stand-in for a GPU: an accelerator component of Open MPI 5.0 whose device memory no processor
 * instruction and no system call can touch. Each allocation is a memfd mapped twice: the address
 * handed out is a mapping without any access, the other is used only by the copy functions here.
 * A copy that leaves its allocation ends the process.
 *
 * device.c, which needs memory of this device, finds the standin_* functions in the loaded file, and
 * provider.c, which reaches it as a network does. The host knows the component under NAME. */
#include "opal_config.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "opal/constants.h"
#include "opal/mca/accelerator/accelerator.h"

#define VISIBLE __attribute__((visibility("default")))

#ifndef NAME
#define NAME standin
#endif
#define JOIN(a, b, c) JOIN_(a, b, c)
#define JOIN_(a, b, c) a##b##c
#define TEXT(name) TEXT_(name)
#define TEXT_(name) #name
#define COMPONENT JOIN(mca_accelerator_, NAME, _component)

enum { DEVICE = 3 };

struct block {
    struct block *next;
    unsigned char *device, *shadow;
    size_t size, mapped;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static uint64_t copies;

VISIBLE void *standin_alloc(size_t size);
VISIBLE void standin_free(void *device);
VISIBLE void standin_write(void *device, const void *host, size_t size);
VISIBLE void standin_read(void *host, const void *device, size_t size);
VISIBLE uint64_t standin_copies(void);
VISIBLE void *standin_reach(const void *address, size_t size);
VISIBLE extern opal_accelerator_base_component_t COMPONENT;

static _Noreturn void fail(const char *what, const void *address, size_t size)
{
    fprintf(stderr, "standin: %s: %p, %zu bytes\n", what, address, size);
    abort();
}

/* The allocation in whose pages the address lies. The lock is held. */
static struct block *find(const void *address)
{
    struct block *block = blocks;
    while (block != NULL && (uintptr_t)address - (uintptr_t)block->device >= block->mapped)
        block = block->next;
    return block;
}

/* Where the processor may touch these bytes; host memory is what it is. The lock is held. */
static unsigned char *reach(const void *address, size_t size, bool *device)
{
    struct block *block = find(address);
    size_t offset;
    if (block == NULL)
        return (unsigned char *)(uintptr_t)address;
    offset = (size_t)((uintptr_t)address - (uintptr_t)block->device);
    if (offset > block->size || size > block->size - offset)
        fail("copy outside an allocation", address, size);
    *device = true;
    return block->shadow + offset;
}

/* Says whether device memory took part. The blocks cannot go while their bytes are copied. */
static bool copy(void *to, const void *from, size_t size)
{
    bool device = false;
    if (size == 0)
        return false;
    pthread_mutex_lock(&lock);
    memmove(reach(to, size, &device), reach(from, size, &device), size);
    pthread_mutex_unlock(&lock);
    return device;
}

void *standin_alloc(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct block *block = calloc(1, sizeof *block);
    int file = memfd_create("standin", MFD_CLOEXEC);
    if (block == NULL || file < 0)
        fail("no memory", NULL, size);
    block->size = size;
    block->mapped = size == 0 ? page : (size + page - 1) / page * page;
    if (ftruncate(file, (off_t)block->mapped) != 0)
        fail("no memory", NULL, size);
    block->device = mmap(NULL, block->mapped, PROT_NONE, MAP_SHARED, file, 0);
    block->shadow = mmap(NULL, block->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (block->device == MAP_FAILED || block->shadow == MAP_FAILED)
        fail("no memory", NULL, size);
    close(file);
    pthread_mutex_lock(&lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&lock);
    return block->device;
}

void standin_free(void *device)
{
    struct block **link = &blocks, *block;
    if (device == NULL)
        return;
    pthread_mutex_lock(&lock);
    while ((block = *link) != NULL && block->device != device)
        link = &block->next;
    if (block == NULL)
        fail("not an allocation", device, 0);
    *link = block->next;
    pthread_mutex_unlock(&lock);
    munmap(block->shadow, block->mapped);
    munmap(block->device, block->mapped);
    free(block);
}

void standin_write(void *device, const void *host, size_t size)
{
    if (size != 0 && !copy(device, host, size))
        fail("not device memory", device, size);
}

void standin_read(void *host, const void *device, size_t size)
{
    if (size != 0 && !copy(host, device, size))
        fail("not device memory", device, size);
}

uint64_t standin_copies(void)
{
    return __atomic_load_n(&copies, __ATOMIC_RELAXED);
}

/* Where device memory is; null for host memory. */
void *standin_reach(const void *address, size_t size)
{
    bool device = false;
    void *found;
    pthread_mutex_lock(&lock);
    found = reach(address, size, &device);
    pthread_mutex_unlock(&lock);
    return device ? found : NULL;
}

static int check_addr(const void *address, int *device, uint64_t *flags)
{
    bool found;
    pthread_mutex_lock(&lock);
    found = find(address) != NULL;
    pthread_mutex_unlock(&lock);
    *flags = 0;
    *device = found ? DEVICE : MCA_ACCELERATOR_NO_DEVICE_ID;
    return found;
}

static int create_stream(int device, opal_accelerator_stream_t **stream)
{
    (void)device;
    *stream = OBJ_NEW(opal_accelerator_stream_t);
    return *stream == NULL ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_SUCCESS;
}

static int create_event(int device, opal_accelerator_event_t **event)
{
    (void)device;
    *event = OBJ_NEW(opal_accelerator_event_t);
    return *event == NULL ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_SUCCESS;
}

/* Copies are complete when they return, so every event has happened. */
static int record_event(int device, opal_accelerator_event_t *event,
                        opal_accelerator_stream_t *stream)
{
    (void)device, (void)event, (void)stream;
    return OPAL_SUCCESS;
}

static int query_event(int device, opal_accelerator_event_t *event)
{
    (void)device, (void)event;
    return OPAL_SUCCESS;
}

static int mem_copy(int to_device, int from_device, void *to, const void *from, size_t size,
                    opal_accelerator_transfer_type_t type)
{
    (void)to_device, (void)from_device, (void)type;
    if (copy(to, from, size))
        __atomic_fetch_add(&copies, 1, __ATOMIC_RELAXED);
    return OPAL_SUCCESS;
}

static int mem_copy_async(int to_device, int from_device, void *to, const void *from, size_t size,
                          opal_accelerator_stream_t *stream, opal_accelerator_transfer_type_t type)
{
    (void)stream;
    return mem_copy(to_device, from_device, to, from, size, type);
}

static int mem_alloc(int device, void **address, size_t size)
{
    (void)device;
    *address = standin_alloc(size);
    return OPAL_SUCCESS;
}

static int mem_release(int device, void *address)
{
    (void)device;
    standin_free(address);
    return OPAL_SUCCESS;
}

static int get_address_range(int device, const void *address, void **base, size_t *size)
{
    struct block *block;
    (void)device;
    pthread_mutex_lock(&lock);
    block = find(address);
    if (block != NULL) {
        *base = block->device;
        *size = block->size;
    }
    pthread_mutex_unlock(&lock);
    return block == NULL ? OPAL_ERR_BAD_PARAM : OPAL_SUCCESS;
}

static int host_register(int device, void *address, size_t size)
{
    (void)device, (void)address, (void)size;
    return OPAL_ERR_NOT_SUPPORTED;
}

static int host_unregister(int device, void *address)
{
    (void)device, (void)address;
    return OPAL_ERR_NOT_SUPPORTED;
}

static int get_device(int *device)
{
    *device = DEVICE;
    return OPAL_SUCCESS;
}

static int get_device_pci_attr(int device, opal_accelerator_pci_attr_t *attributes)
{
    (void)device, (void)attributes;
    return OPAL_ERR_NOT_SUPPORTED;
}

static int device_can_access_peer(int *access, int one, int other)
{
    (void)one, (void)other;
    *access = 0;
    return OPAL_SUCCESS;
}

static int get_buffer_id(int device, const void *address, opal_accelerator_buffer_id_t *id)
{
    (void)device, (void)address, (void)id;
    return OPAL_ERR_NOT_SUPPORTED;
}

static opal_accelerator_base_module_t module = {
    .check_addr = check_addr,
    .create_stream = create_stream,
    .create_event = create_event,
    .record_event = record_event,
    .query_event = query_event,
    .mem_copy_async = mem_copy_async,
    .mem_copy = mem_copy,
    .mem_move = mem_copy,
    .mem_alloc = mem_alloc,
    .mem_release = mem_release,
    .get_address_range = get_address_range,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .get_device = get_device,
    .get_device_pci_attr = get_device_pci_attr,
    .device_can_access_peer = device_can_access_peer,
    .get_buffer_id = get_buffer_id,
};

static opal_accelerator_base_module_t *start(void)
{
    return &module;
}

static void stop(opal_accelerator_base_module_t *given)
{
    (void)given;
}

static int nothing(void)
{
    return OPAL_SUCCESS;
}

opal_accelerator_base_component_t COMPONENT = {
    .base_version = {
        OPAL_ACCELERATOR_BASE_VERSION_1_0_0,
        .mca_component_name = TEXT(NAME),
        .mca_component_major_version = 1,
        .mca_open_component = nothing,
        .mca_close_component = nothing,
        .mca_register_component_params = nothing,
    },
    .accelerator_init = start,
    .accelerator_finalize = stop,
};
