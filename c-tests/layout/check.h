/* The checks of the layout programs. Each prints one `ok` or `not ok` line and is counted. */
#ifndef HAWSER_LAYOUT_CHECK_H
#define HAWSER_LAYOUT_CHECK_H

#include <stddef.h>
#include <stdio.h>

static int passed;
static int failed;

static inline void count(int good)
{
    if (good) {
        passed++;
    } else {
        failed++;
    }
}

static inline void compare_field(const char *ours, size_t offset, size_t size, const char *host,
                                 size_t host_offset, size_t host_size)
{
    int good = offset == host_offset && size == host_size;
    printf("%s - %s at %zu, %zu B; %s at %zu, %zu B\n", good ? "ok" : "not ok", ours, offset, size,
           host, host_offset, host_size);
    count(good);
}

static inline void compare_number(const char *what, long long found, long long expected)
{
    int good = found == expected;
    printf("%s - %s is %lld, expected %lld\n", good ? "ok" : "not ok", what, found, expected);
    count(good);
}

static inline void compare_type(const char *what, int good)
{
    printf("%s - %s has the expected type\n", good ? "ok" : "not ok", what);
    count(good);
}

static inline int summary(void)
{
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}

#define SIZE_OF_FIELD(type, field) sizeof(((type *) 0)->field)

/* OURS(name) is the structure of the generated header; each host's program defines it. */

/* A field: offset and size. */
#define CHECK(ours, field, host, host_field)                                               \
    compare_field(#ours "." #field, offsetof(OURS(ours), field),                           \
                  SIZE_OF_FIELD(OURS(ours), field), #host "." #host_field,                 \
                  offsetof(host, host_field), SIZE_OF_FIELD(host, host_field))

/* An array of ours over several fields of the host, from `first` to the end of `last`. */
#define CHECK_SPAN(ours, field, host, first, last)                                         \
    compare_field(#ours "." #field, offsetof(OURS(ours), field),                           \
                  SIZE_OF_FIELD(OURS(ours), field), #host "." #first ".." #last,           \
                  offsetof(host, first),                                                   \
                  offsetof(host, last) + SIZE_OF_FIELD(host, last) - offsetof(host, first))

/* A function pointer: offset, size, and the host's type, spelled with the host's own types. */
#define CHECK_FUNCTION(ours, field, host, host_field, ...)                                 \
    do {                                                                                   \
        CHECK(ours, field, host, host_field);                                              \
        compare_type(#host "." #host_field,                                                \
                     __builtin_types_compatible_p(__typeof__(((host *) 0)->host_field),    \
                                                  __VA_ARGS__));                           \
    } while (0)

/* The size of a whole structure. */
#define CHECK_SIZE(ours, host)                                                             \
    compare_field(#ours, 0, sizeof(OURS(ours)), #host, 0, sizeof(host))

/* The size of a structure that ends before the host's does: `next` is the first field left out. */
#define CHECK_PREFIX(ours, host, next)                                                     \
    compare_field(#ours, 0, sizeof(OURS(ours)), #host " up to " #next, 0, offsetof(host, next))

/* A constant, an offset or a size that is known as a number. */
#define CHECK_CONSTANT(name, value) compare_number(#name, (long long) (name), value)
#define CHECK_OFFSET(type, field, value)                                                   \
    compare_number("offset of " #type "." #field, (long long) offsetof(type, field), value)
#define CHECK_SIZE_IS(type, value) \
    compare_number("size of " #type, (long long) sizeof(type), value)

/* The type of a function that hawser looks up by name. */
#define CHECK_PROTOTYPE(function, ...) \
    compare_type(#function, __builtin_types_compatible_p(__typeof__(&function), __VA_ARGS__))

#endif
