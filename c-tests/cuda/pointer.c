/* What the driver knows of an address. Asked for one attribute of an address that it does not know, it answers
 * INVALID_VALUE; asked for several, SUCCESS and zeros. */
#include "standin.h"

/* What the driver calls the device of an address that it does not know. */
enum { NOBODY = -2 };

/* How many bytes an attribute has; 0 for one that is unknown. */
static size_t width(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return 8;
    /* A boolean is as long as a number, not as C's own. */
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return 4;
    }
    return 0;
}

static bool is_host(const struct range *range) { return range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED; }

/* Whether the driver tells an allocation from all others of the process. */
static bool is_numbered(const struct range *range)
{
    bool is_special = range->kind == RANGE_POOLED || range->kind == RANGE_MAPPED;
    return !is_special || setting("HAWSER_CUDA_UNNUMBERED", 0) == 0;
}

static CUresult ask(const struct range *range, CUpointer_attribute attribute, CUdeviceptr address, void *data)
{
    uint64_t value = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        /* What is mapped, or comes from a pool, belongs to none. */
        value = range->context == NULL ? 0 : (uintptr_t)range->context->handle;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: value = is_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: {
        CUresult error;
        const struct context *current = context_current(&error);
        if (current == NULL) return error;
        if (range->kind == RANGE_DEVICE && !context_reaches(current, range->context)) return CUDA_ERROR_INVALID_VALUE;
        value = address;
        break;
    }
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!is_host(range) && range->kind != RANGE_MANAGED) return CUDA_ERROR_INVALID_VALUE;
        value = address;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: value = range->sync_memops; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: value = is_numbered(range) ? range->id : 0; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: value = range->kind == RANGE_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: value = (uint32_t)range->device; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: value = range->kind == RANGE_DEVICE && !device_mig(); break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: value = range->base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: value = range->size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: value = 1; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        if (range->kind == RANGE_MAPPED) value = (uint32_t)range->memory->header->handle_types;
        if (range->kind == RANGE_POOLED) value = (uint32_t)pool_handle_types(range->pool);
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        if (range->kind == RANGE_POOLED) value = (uintptr_t)pool_handle(range->pool);
        break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(data, &value, width(attribute)); /* the first bytes of a number are its lowest */
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    ENTER(NEEDS_INIT);
    struct range *range = range_at(address);
    if (data == NULL || width(attribute) == 0 || range == NULL) return CUDA_ERROR_INVALID_VALUE;
    return ask(range, attribute, address, data);
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
    ENTER(NEEDS_INIT);
    if (attributes == NULL || data == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (data[i] == NULL || width(attributes[i]) == 0) return CUDA_ERROR_INVALID_VALUE;
    struct range *range = range_at(address);
    for (unsigned i = 0; i < count; i++) {
        memset(data[i], 0, width(attributes[i]));
        if (range == NULL && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int *)data[i] = NOBODY;
        if (range != NULL) ask(range, attributes[i], address, data[i]);
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    ENTER(NEEDS_INIT);
    struct range *range = range_at(address);
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || range == NULL || is_host(range))
        return CUDA_ERROR_INVALID_VALUE;
    if (range->kind == RANGE_MANAGED) return CUDA_ERROR_INVALID_VALUE;
    if (range->kind == RANGE_MAPPED || range->kind == RANGE_POOLED) return CUDA_ERROR_NOT_SUPPORTED;
    /* What is under way is not waited for. */
    range->sync_memops = *(const int *)value != 0;
    return CUDA_SUCCESS;
}
