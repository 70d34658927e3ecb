/* What a process has of the machine, and how much that grows while the same is done over and over. */
#ifndef GROWTH_H
#define GROWTH_H

#include <dirent.h>

/* What may come in the last nine tenths of it. A window of usnic's grows for as long as nothing is lost, and with it what
 * is under way: for a hundred thousand operations. Behind that come pages of the heap that are seldom used: of a million
 * operations, none may leave a byte. */
enum { SHORT = 200000, SHORT_BYTES = 2 << 20, MILLION = 1000000, MILLION_BYTES = 512 << 10 };

/* A large allocation of the heap's has a mapping of its own. */
enum { MOST_MAPPINGS = 8 };

static struct {
    long operations;
    long bytes, descriptors, mappings;
} has;

static long resident(void)
{
    long whole, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &whole, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static long descriptors(void)
{
    long count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

static long mappings(void)
{
    long count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    for (int byte; (byte = getc(file)) != EOF;) count += byte == '\n';
    fclose(file);
    return count;
}

/* Does it until there have been so many operations. `batch` returns how many it was. */
static void grow_over(long most, long most_bytes, long (*batch)(void))
{
    for (int is_warm = 0; has.operations < most;) {
        has.operations += batch();
        if (is_warm || has.operations < most / 10) continue;
        is_warm = 1;
        has.bytes = resident(), has.descriptors = descriptors(), has.mappings = mappings();
    }
    long bytes = resident() - has.bytes, more = descriptors() - has.descriptors, maps = mappings() - has.mappings;
    printf("process %d: %ld operations, after a tenth of them resident %+ld bytes, descriptors %+ld, mappings %+ld\n",
           me, has.operations, bytes, more, maps);
    fflush(stdout);
    CHECK(bytes <= most_bytes && more <= 0 && maps <= MOST_MAPPINGS);
}

/* What each program does itself. */
static void grow(long most, long most_bytes);

static void case_short(void) { grow(SHORT, SHORT_BYTES); }

static void case_million(void) { grow(MILLION, MILLION_BYTES); }

static const struct one_case growth_cases[] = {{"short", case_short}, {"million", case_million}};

#endif
