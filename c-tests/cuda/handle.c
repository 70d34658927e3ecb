/* Handles: an index, a kind and a generation in a number that nobody can follow. */
#include "standin.h"

static struct slot {
    void *object;
    uint32_t generation;
    unsigned char kind;
} *slots;
static size_t slot_count;

static struct slot *slot_of(enum handle_kind kind, uintptr_t handle)
{
    size_t index = handle >> 4 & 0xffffff;
    if (index >= slot_count || (handle & 15) != 0 || (handle >> 28 & 15) != kind || slots[index].kind != kind) return NULL;
    return &slots[index];
}

uintptr_t handle_make(enum handle_kind kind, void *object)
{
    size_t index = 1; /* index 0 would make handles that look like NULL */
    while (index < slot_count && slots[index].object != NULL) index++;
    if (index >= slot_count) {
        size_t count = slot_count == 0 ? 64 : 2 * slot_count;
        slots = realloc(slots, count * sizeof *slots);
        if (slots == NULL) abort();
        memset(slots + slot_count, 0, (count - slot_count) * sizeof *slots);
        slot_count = count;
    }
    slots[index].object = object;
    slots[index].kind = kind;
    slots[index].generation++;
    return (uintptr_t)slots[index].generation << 32 | (uintptr_t)kind << 28 | index << 4;
}

void *handle_object(enum handle_kind kind, uintptr_t handle)
{
    struct slot *slot = slot_of(kind, handle);
    return slot != NULL && slot->generation == handle >> 32 ? slot->object : NULL;
}

void handle_drop(uintptr_t handle)
{
    slots[handle >> 4 & 0xffffff].object = NULL;
}
