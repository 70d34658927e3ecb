/* The world of a test: two processes that share a page, a driver that watches both, and the verdict. */
#ifndef HAWSER_HOSTILE_WORLD_H
#define HAWSER_HOSTILE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RANKS = 2 };

/* This process, and the other one. */
extern int self, other;
/* The number of the job: another one in each test, so that agents of other jobs are strangers. */
extern uint32_t job;
/* Everything slows down under valgrind: a test may do less, but not something else. */
extern bool is_slow;

/* Which byte transport a test drives. */
enum transport { USNIC, SMCUDA, VERBS, TRANSPORTS };
extern enum transport transport;

/* How the second process is to end. */
enum ending { RETURNS, IS_KILLED };

/* One whose name begins with `btl` runs over each byte transport, one that begins with a transport's only over that. */
struct test {
    const char *name;
    void (*run)(void);
    enum ending ending;
};

/* All tests, ended by a null name; each file has its own. */
extern const struct test btl_life_tests[], btl_callback_tests[], btl_argument_tests[],
    btl_memory_tests[], btl_loss_tests[], btl_again_tests[], btl_thread_tests[], btl_death_tests[],
    mtl_life_tests[], mtl_message_tests[], mtl_loss_tests[];

/* Ends the process unless the condition holds, and the test with it. */
#define CHECK(condition, ...)                                                            \
    do {                                                                                 \
        if (!(condition))                                                                \
            fail(__FILE__, __LINE__, #condition, " " __VA_ARGS__);                       \
    } while (0)
_Noreturn void fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Something has happened: the driver ends a test in which nothing does. */
void note_progress(void);
/* What the process is at, for the driver to tell if it gets stuck. */
void step(const char *what);
/* Tells something of interest. */
void remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Waits for the other process, and lets the host make progress meanwhile. */
void fence(void);
/* Waits until the other process has come to its next fence, without making any progress. */
void fence_still(void);
/* A number that the other process sees. */
void tell(uint64_t number);
uint64_t told(void);

/* What a process publishes, and what either has published; false when there is none. */
void publish(const char *key, const void *bytes, size_t size);
bool look_up(uint32_t rank, const char *key, const void **bytes, size_t *size);

#endif
