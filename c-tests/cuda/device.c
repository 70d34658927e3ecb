/* Devices: HAWSER_CUDA_DEVICES of them (2), of which CUDA_VISIBLE_DEVICES shows some in some order.
 * HAWSER_CUDA_PEERS says which reach one another: `all` (as it is), `none`, or a list of A-B (both ways) and
 * A>B (one way), by physical numbers. HAWSER_CUDA_MEMORY is the memory of each in MiB. HAWSER_CUDA_MIG=1
 * makes each of them an instance of a shared one: no peers, no IPC. */
#include "standin.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

int device_count;
static int physical_count;
static int physical[MAX_DEVICES];
static bool reaches[MAX_DEVICES][MAX_DEVICES];
static bool mig;

static CUuuid uuid_of(int number, bool instance)
{
    CUuuid uuid;
    memcpy(uuid.bytes, instance ? "hawser instance " : "hawser software ", 16);
    uuid.bytes[15] = (unsigned char)number;
    return uuid;
}

/* GPU-xxxxxxxx-…, or a beginning of it that is unique; the number of that device, or -1. */
static int by_uuid(const char *word)
{
    int found = -1;
    for (int number = 0; number < physical_count; number++) {
        CUuuid uuid = uuid_of(number, mig);
        char text[64] = "";
        char *at = text + sprintf(text, "%s", mig ? "MIG-" : "GPU-");
        for (int i = 0; i < 16; i++) at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid.bytes[i]);
        if (strlen(word) < 5 || strncasecmp(text, word, strlen(word)) != 0) continue;
        if (found >= 0) return -1;
        found = number;
    }
    return found;
}

/* As the driver reads the list: it ends at the first word that names no device; one named twice empties it. */
static void read_visible(const char *list)
{
    device_count = 0;
    char *copy = strdup(list), *rest = copy;
    bool seen[MAX_DEVICES] = {false};
    for (char *word; copy != NULL && (word = strsep(&rest, ",")) != NULL;) {
        while (isspace((unsigned char)*word)) word++;
        char *end;
        long number = isdigit((unsigned char)*word) ? strtol(word, &end, 10) : by_uuid(word);
        if (number < 0 || number >= physical_count) break;
        if (seen[number]) {
            device_count = 0;
            break;
        }
        seen[number] = true;
        physical[device_count++] = (int)number;
    }
    free(copy);
}

static void read_peers(const char *list)
{
    bool all = list == NULL || strcmp(list, "all") == 0;
    for (int a = 0; a < physical_count; a++)
        for (int b = 0; b < physical_count; b++) reaches[a][b] = a == b || (all && !mig);
    if (all || mig || strcmp(list, "none") == 0) return;
    char *copy = strdup(list), *rest = copy;
    for (char *word; copy != NULL && (word = strsep(&rest, ",")) != NULL;) {
        unsigned a, b;
        char sign;
        if (sscanf(word, "%u%c%u", &a, &sign, &b) != 3 || a >= MAX_DEVICES || b >= MAX_DEVICES || (sign != '-' && sign != '>')) {
            fprintf(stderr, "HAWSER_CUDA_PEERS: `%s` is not A-B or A>B\n", word);
            abort();
        }
        reaches[a][b] = true;
        if (sign == '-') reaches[b][a] = true;
    }
    free(copy);
}

void device_read(void)
{
    unsigned long count = setting("HAWSER_CUDA_DEVICES", 2);
    physical_count = count > MAX_DEVICES ? MAX_DEVICES : (int)count;
    mig = setting("HAWSER_CUDA_MIG", 0) != 0;
    device_count = physical_count;
    for (int i = 0; i < physical_count; i++) physical[i] = i;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL) read_visible(visible);
    read_peers(getenv("HAWSER_CUDA_PEERS"));
}

bool device_valid(CUdevice device) { return device >= 0 && device < device_count; }
int device_physical(CUdevice device) { return physical[device]; }
bool device_mig(void) { return mig; }
bool device_reaches(int from, int to) { return from >= 0 && from < physical_count && to >= 0 && to < physical_count && reaches[from][to]; }
size_t device_total(void) { return (size_t)setting("HAWSER_CUDA_MEMORY", 8192) << 20; }

CUresult cuDeviceGetCount(int *count)
{
    ENTER(NEEDS_INIT);
    if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
    *count = device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(NEEDS_INIT);
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (name == NULL || size <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)size, "hawser software device %d", physical[device]);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    *uuid = uuid_of(mig ? 0 : physical[device], false); /* that of the device which the instances share */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    *uuid = uuid_of(physical[device], mig);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = device_total();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: *value = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; break;
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: *value = !mig; break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 2; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 8; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = 0x10 + (mig ? 0 : physical[device]); break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: *value = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (text == NULL || size < 13) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, (size_t)size, "0000:%02x:00.0", 0x10 + (mig ? 0 : physical[device]));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    ENTER(NEEDS_INIT);
    unsigned domain, bus, slot;
    if (device == NULL || text == NULL || sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < device_count; i++) {
        if (domain != 0 || slot != 0 || (int)bus != 0x10 + (mig ? 0 : physical[i])) continue;
        *device = i;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    ENTER(NEEDS_INIT);
    if (can == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device) || !device_valid(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && device_reaches(physical[device], physical[peer]); /* a device is no peer of itself */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
    ENTER(NEEDS_INIT);
    if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(from) || !device_valid(to) || from == to) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: *value = device_reaches(physical[from], physical[to]); break;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: *value = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
