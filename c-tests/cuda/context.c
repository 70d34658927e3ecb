/* Contexts: a stack of current ones in each thread; one primary context for each device, which lives while
 * somebody retains it; others by cuCtxCreate. A context that ends takes with it all that was made in it. */
#include "standin.h"

#define DEPTH 64

static struct context *contexts;
static struct context *primaries[MAX_DEVICES];
static _Thread_local CUcontext stack[DEPTH];
static _Thread_local bool was_gone[DEPTH]; /* when it was pushed */
static _Thread_local unsigned depth;
static unsigned long long ids;

struct context *context_of(CUcontext handle) { return handle_object(HANDLE_CONTEXT, (uintptr_t)handle); }

/* Whether what runs in `context` reaches memory of `owner` by its address. */
bool context_reaches(const struct context *context, const struct context *owner)
{
    if (owner == NULL || context->device == owner->device) return true;
    for (unsigned i = 0; i < context->peer_count; i++)
        if (context->peers[i] == owner) return true;
    return false;
}

struct context *context_current(CUresult *error)
{
    *error = CUDA_ERROR_INVALID_CONTEXT;
    if (depth == 0 || stack[depth - 1] == NULL) return NULL;
    struct context *context = context_of(stack[depth - 1]);
    *error = context == NULL || !context->alive ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->error;
    return *error == CUDA_SUCCESS ? context : NULL;
}

static struct context *make(CUdevice device, unsigned flags)
{
    struct context *context = calloc(1, sizeof *context);
    if (context == NULL) abort();
    context->handle = (CUcontext)handle_make(HANDLE_CONTEXT, context);
    context->device = device;
    context->flags = flags;
    context->next = contexts;
    contexts = context;
    return context;
}

static void begin(struct context *context)
{
    context->alive = true;
    context->error = CUDA_SUCCESS;
    context->id = ++ids;
    context->legacy = stream_make(context, 0);
    context->legacy->legacy = true;
}

static void end(struct context *context)
{
    queue_drain(context->device);
    context->alive = false;
    context->retained = 0;
    context->peer_count = 0;
    event_close_all(context);
    range_free_all(context);
    stream_close_all(context);
    context->legacy = NULL;
    for (struct context *other = contexts; other != NULL; other = other->next)
        for (unsigned i = 0; i < other->peer_count; i++)
            if (other->peers[i] == context) other->peers[i--] = other->peers[--other->peer_count];
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *result, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (result == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    struct context *primary = primaries[device];
    if (primary == NULL) {
        primary = primaries[device] = make(device, 0);
        primary->primary = true;
    }
    if (!primary->alive) begin(primary);
    primary->retained++;
    ledger_add(PRIMARY_CONTEXTS);
    *result = primary->handle;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    struct context *primary = primaries[device];
    if (primary == NULL || !primary->alive || primary->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    ledger_remove(PRIMARY_CONTEXTS);
    if (--primary->retained == 0) end(primary);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    struct context *primary = primaries[device];
    if (primary == NULL || !primary->alive) return CUDA_SUCCESS;
    while (primary->retained > 0) {
        ledger_remove(PRIMARY_CONTEXTS);
        primary->retained--;
    }
    end(primary);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    ENTER(NEEDS_INIT);
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (primaries[device] == NULL) {
        primaries[device] = make(device, 0);
        primaries[device]->primary = true;
    }
    primaries[device]->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    ENTER(NEEDS_INIT);
    if (flags == NULL || active == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = primaries[device] == NULL ? 0 : primaries[device]->flags;
    *active = primaries[device] != NULL && primaries[device]->alive;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *result, unsigned flags, CUdevice device)
{
    if (result == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (depth == DEPTH) return CUDA_ERROR_OUT_OF_MEMORY;
    struct context *made = make(device, flags);
    begin(made);
    ledger_add(CONTEXTS);
    was_gone[depth] = false;
    stack[depth++] = made->handle;
    *result = made->handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *result, unsigned flags, CUdevice device)
{
    ENTER(NEEDS_INIT);
    return create(result, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *result, void *affinities, int count, unsigned flags, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (affinities != NULL || count != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return create(result, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *result, void *parameters, unsigned flags, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (parameters != NULL) return CUDA_ERROR_NOT_SUPPORTED;
    return create(result, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle)
{
    ENTER(NEEDS_INIT);
    struct context *gone = context_of(handle);
    if (gone == NULL || gone->primary) return CUDA_ERROR_INVALID_CONTEXT;
    end(gone);
    ledger_remove(CONTEXTS);
    if (depth > 0 && stack[depth - 1] == handle) depth--;
    for (struct context **at = &contexts; *at != NULL; at = &(*at)->next)
        if (*at == gone) {
            *at = gone->next;
            break;
        }
    handle_drop((uintptr_t)handle);
    free(gone);
    return CUDA_SUCCESS;
}

static bool is_gone(CUcontext handle)
{
    const struct context *named = context_of(handle);
    return named == NULL || !named->alive;
}

/* Whether it is there is not looked at: that shows when it is taken off again. */
CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    ENTER(NEEDS_INIT);
    if (handle == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == DEPTH) return CUDA_ERROR_OUT_OF_MEMORY;
    was_gone[depth] = is_gone(handle);
    stack[depth++] = handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *handle)
{
    ENTER(NEEDS_INIT);
    if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (was_gone[depth] && is_gone(stack[depth])) crash("a context is popped that had gone when it was pushed");
    if (handle != NULL) *handle = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
    ENTER(NEEDS_INIT);
    if (handle == NULL) { /* takes the top away */
        if (depth > 0) depth--;
        return CUDA_SUCCESS;
    }
    if (context_of(handle) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == 0) depth = 1;
    was_gone[depth - 1] = false;
    stack[depth - 1] = handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *handle)
{
    ENTER(NEEDS_INIT);
    if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    *handle = depth == 0 ? NULL : stack[depth - 1];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    ENTER(NEEDS_CONTEXT);
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

/* The context of a handle, or the current one. */
static CUresult named(CUcontext handle, struct context **result)
{
    CUresult error = CUDA_ERROR_INVALID_CONTEXT;
    *result = handle == NULL ? context_current(&error) : context_of(handle);
    if (*result == NULL) return handle == NULL ? error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (*result)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    ENTER(NEEDS_INIT);
    struct context *wanted;
    CUresult error = named(handle, &wanted);
    if (error != CUDA_SUCCESS) return error;
    if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
    *id = wanted->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned *version)
{
    ENTER(NEEDS_INIT);
    struct context *wanted;
    CUresult error = named(handle, &wanted);
    if (error != CUDA_SUCCESS) return error;
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags)
{
    ENTER(NEEDS_CONTEXT);
    if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

/* In place of those that it had. What is under way is not waited for. */
CUresult cuCtxSetFlags(unsigned flags)
{
    ENTER(NEEDS_CONTEXT);
    if ((flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(NEEDS_CONTEXT);
    if (least != NULL) *least = 0;
    if (greatest != NULL) *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags)
{
    ENTER(NEEDS_CONTEXT);
    struct context *peer = context_of(handle);
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (peer == NULL || !peer->alive || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == context->device) return CUDA_ERROR_INVALID_DEVICE;
    if (!device_reaches(device_physical(context->device), device_physical(peer->device)))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    for (unsigned i = 0; i < context->peer_count; i++)
        if (context->peers[i] == peer) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (context->peer_count == MAX_DEVICES) return CUDA_ERROR_OUT_OF_MEMORY;
    context->peers[context->peer_count++] = peer;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
    ENTER(NEEDS_CONTEXT);
    struct context *peer = context_of(handle);
    if (peer == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    for (unsigned i = 0; i < context->peer_count; i++)
        if (context->peers[i] == peer) {
            context->peers[i] = context->peers[--context->peer_count];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
