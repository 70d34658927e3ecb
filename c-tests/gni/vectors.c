/* Address vectors with a name, fi_av(3): processes of the node open them and have the same peers under the same numbers. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "pair.h"

/* A name that other processes of this test have not. */
static const char *a_name(const char *of)
{
    static char text[64];
    static int owner;
    if (!owner)
        owner = getpid();
    snprintf(text, sizeof(text), "vector of %s %d", of, owner);
    return text;
}

static void open_here(void)
{
    struct fi_info *hints = wish();
    hints->caps = FI_MSG | FI_SHARED_AV;
    hints->ep_attr->type = FI_EP_RDM;
    open_domain(API, hints);
    HOLDS(info->caps & FI_SHARED_AV);
}

static int try_vector(const char *name, enum fi_av_type type, uint64_t flags, struct fid_av **av)
{
    struct fi_av_attr attr = {.type = type, .name = name, .flags = flags};
    *av = NULL;
    return fi_av_open(domain, &attr, av, NULL);
}

static struct fid_av *a_vector(const char *name, enum fi_av_type type, uint64_t flags)
{
    struct fid_av *av;
    NEED(try_vector(name, type, flags, &av));
    return av;
}

/* The name of an endpoint that need not be there. */
static void service(char *name, uint32_t id)
{
    memset(name, 0, 48);
    const uint8_t localhost[] = {1, 0, 0, 127};
    memcpy(name, localhost, 4);
    memcpy(name + 4, &id, 4);
    name[8] = 1;
}

static fi_addr_t add(struct fid_av *av, uint32_t id)
{
    char name[48];
    fi_addr_t number = FI_ADDR_NOTAVAIL;
    service(name, id);
    IS(fi_av_insert(av, name, 1, &number, 0, NULL), 1);
    return number;
}

/* Who has this number: the service, or 0. */
static uint32_t who(struct fid_av *av, fi_addr_t number)
{
    char name[48] = {0};
    size_t length = sizeof(name);
    uint32_t id;
    int code = fi_av_lookup(av, number, name, &length);
    if (code != 0) {
        IS(code, -FI_EINVAL);
        return 0;
    }
    IS(length, 48);
    memcpy(&id, name + 4, 4);
    return id;
}

static void say(int to, const void *what, size_t length)
{
    NEED(write(to, what, length) != (ssize_t) length);
}

static void hear(int from, void *what, size_t length)
{
    NEED(recv(from, what, length, MSG_WAITALL) != (ssize_t) length);
}

/* A process of its own, and how it is talked to. */
struct other {
    pid_t pid;
    int wire;
};

static struct other start(void (*run)(int wire))
{
    int both[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, both));
    struct other other = {fork(), both[0]};
    NEED(other.pid < 0);
    if (other.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(both[0]);
        run(both[1]);
        exit(wrong != 0);
    }
    close(both[1]);
    return other;
}

static void ended(struct other *other)
{
    int status;
    NEED(waitpid(other->pid, &status, 0) != other->pid);
    IS(status, 0);
    close(other->wire);
}

/* Nothing in a folder bears this process's marks. */
static void leaves_nothing(void)
{
    DIR *folder = opendir("/dev/shm");
    struct dirent *entry;
    NEED(folder == NULL);
    while ((entry = readdir(folder)))
        HOLDS(!strstr(entry->d_name, "vector of") && !strstr(entry->d_name, "hawser"));
    closedir(folder);
}

static enum fi_av_type kind;

/* Who is sent to. */
static void server(int wire)
{
    char name[48], text[16] = {0};
    struct fi_info *hints = wish();
    hints->caps = FI_MSG | FI_TAGGED;
    open_domain(API, hints);
    open_end(here);
    IS(fi_recv(here->ep, text, sizeof(text), NULL, FI_ADDR_UNSPEC, NULL), 0);
    name_of(here, name);
    say(wire, name, 48);
    IS(next(here->rx, NULL).len, 6);
    HOLDS(strcmp(text, "child") == 0);
    close_end(here);
    close_domain();
}

/* Who sends, to the first number of a vector that another process has made. */
static void sender_of(int wire)
{
    char go;
    hear(wire, &go, 1);
    open_here();
    struct fi_av_attr attr = {.name = a_name("messages"), .flags = FI_READ};
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    NEED(fi_av_open(domain, &attr, &here->av, NULL));
    IS(attr.type, kind);
    NEED(attr.map_addr == NULL);
    NEED(fi_cq_open(domain, &queue, &here->tx, NULL));
    NEED(fi_cq_open(domain, &queue, &here->rx, NULL));
    NEED(fi_endpoint(domain, info, &here->ep, NULL));
    NEED(fi_ep_bind(here->ep, &here->av->fid, 0));
    NEED(fi_ep_bind(here->ep, &here->tx->fid, FI_TRANSMIT));
    NEED(fi_ep_bind(here->ep, &here->rx->fid, FI_RECV));
    NEED(fi_enable(here->ep));
    fi_addr_t number = ((fi_addr_t *) attr.map_addr)[0];
    POST(fi_send(here->ep, "child", 6, NULL, number, NULL));
    next(here->tx, NULL);
    IS(fi_close(&here->av->fid), -FI_EBUSY);
    close_end(here);
    close_domain();
}

/* As fabtests do: one makes it, another sends. */
static void messages(void)
{
    a_name("");
    for (kind = FI_AV_MAP; kind <= FI_AV_TABLE; kind++) {
        char name[48];
        fi_addr_t number;
        struct other one = start(server), two = start(sender_of);
        hear(one.wire, name, 48);
        open_here();
        struct fid_av *av = a_vector(a_name("messages"), kind, 0);
        IS(fi_av_insert(av, name, 1, &number, 0, NULL), 1);
        say(two.wire, "g", 1);
        ended(&two);
        ended(&one);
        IS(fi_close(&av->fid), 0);
        close_domain();
    }
    leaves_nothing();
}

static void calls(void)
{
    struct fid_av *made, *reads, *writes, *none;
    open_here();
    char large[300] = {0};
    memset(large, 'n', sizeof(large) - 1);
    IS(try_vector(NULL, FI_AV_TABLE, FI_READ, &none), -FI_EINVAL);
    IS(try_vector(a_name("calls"), FI_AV_TABLE, FI_READ, &none), -FI_ENOENT);
    IS(try_vector("", FI_AV_TABLE, 0, &none), -FI_EINVAL);
    IS(try_vector(large, FI_AV_TABLE, 0, &none), -FI_EINVAL);
    struct fi_av_attr attr = {.type = FI_AV_TABLE, .name = a_name("calls"), .count = 1 << 30};
    IS(fi_av_open(domain, &attr, &none, NULL), -FI_ENOMEM);
    attr = (struct fi_av_attr){.type = FI_AV_TABLE, .count = 4};
    NEED(fi_av_open(domain, &attr, &none, NULL));
    HOLDS(attr.map_addr == NULL);
    IS(fi_close(&none->fid), 0);
    for (kind = FI_AV_MAP; kind <= FI_AV_TABLE; kind++) {
        made = a_vector(a_name("calls"), kind, 0);
        IS(try_vector(a_name("calls"), 3 - kind, 0, &none), -FI_EINVAL);
        IS(try_vector(a_name("calls"), 3 - kind, FI_READ, &none), -FI_EINVAL);
        writes = a_vector(a_name("calls"), FI_AV_UNSPEC, 0);
        attr = (struct fi_av_attr){.name = a_name("calls"), .flags = FI_READ};
        NEED(fi_av_open(domain, &attr, &reads, NULL));
        IS(attr.type, kind);
        const fi_addr_t *map = attr.map_addr;
        NEED(map == NULL);
        attr = (struct fi_av_attr){.name = a_name("calls"), .flags = FI_READ, .map_addr = &attr};
        NEED(fi_av_open(domain, &attr, &none, NULL));
        HOLDS(attr.map_addr == &attr);
        IS(fi_close(&none->fid), 0);

        char names[3][48];
        fi_addr_t numbers[3];
        service(names[0], 11);
        memset(names[1], 0xFF, 48);
        service(names[2], 13);
        IS(fi_av_insert(made, names, 3, numbers, 0, NULL), 2);
        IS(numbers[1], FI_ADDR_NOTAVAIL);
        HOLDS(map[0] == numbers[0] && map[1] == numbers[2]);
        if (kind == FI_AV_TABLE)
            HOLDS(numbers[0] == 0 && numbers[2] == 1);
        fi_addr_t more = add(writes, 14);
        HOLDS(map[2] == more);
        struct fid_av *all[] = {made, writes, reads};
        for (int i = 0; i < 3; i++) {
            HOLDS(who(all[i], numbers[0]) == 11 && who(all[i], numbers[2]) == 13 && who(all[i], more) == 14);
            IS(who(all[i], 3), 0);
            IS(who(all[i], FI_ADDR_NOTAVAIL), 0);
        }
        IS(fi_av_insert(reads, names, 1, NULL, 0, NULL), -FI_EACCES);
        IS(fi_av_remove(reads, numbers, 1, 0), -FI_EACCES);
        IS(fi_av_remove(writes, numbers, 1, 0), 0);
        IS(fi_av_remove(made, numbers, 1, 0), -FI_EINVAL);
        HOLDS(who(reads, numbers[0]) == 0 && map[0] == FI_ADDR_NOTAVAIL);
        fi_addr_t again = add(made, 15);
        HOLDS((again == numbers[0]) == (kind == FI_AV_TABLE) && map[0] == again);
        IS(who(reads, again), 15);

        IS(fi_close(&made->fid), 0);
        IS(who(reads, more), 14);
        IS(add(writes, 16), map[3]);
        IS(try_vector(a_name("calls"), FI_AV_UNSPEC, FI_READ, &none), -FI_ENOENT);
        made = a_vector(a_name("calls"), 3 - kind, 0);
        IS(who(made, more), 0);
        struct fid_av *last[] = {made, writes, reads};
        for (int i = 0; i < 3; i++)
            IS(fi_close(&last[i]->fid), 0);
    }
    /* Told by an event queue. */
    made = a_vector(a_name("events"), FI_AV_TABLE, FI_EVENT);
    struct fid_eq *eq = an_eq(0, 0, FI_WAIT_UNSPEC);
    struct fi_eq_entry done = {0};
    uint32_t event;
    char name[48];
    service(name, 17);
    IS(fi_av_insert(made, name, 1, NULL, 0, NULL), -FI_ENOEQ);
    NEED(fi_av_bind(made, &eq->fid, 0));
    IS(fi_av_insert(made, name, 1, NULL, 0, &done), 0);
    IS(fi_eq_sread(eq, &event, &done, sizeof(done), -1, 0), sizeof(done));
    HOLDS(event == FI_AV_COMPLETE && done.data == 1 && who(made, 0) == 17);
    IS(fi_close(&made->fid), 0);
    IS(fi_close(&eq->fid), 0);
    close_domain();
    leaves_nothing();
}

/* Makes a vector, and lives until it is killed; with a child, which goes on. */
static void maker(int wire)
{
    open_here();
    struct fid_av *av = a_vector(a_name("death"), FI_AV_TABLE, 0);
    IS(add(av, 21), 0);
    pid_t heir = fork();
    NEED(heir < 0);
    if (heir == 0) {
        char over;
        IS(fi_close(&av->fid), 0);
        say(wire, &(pid_t){getpid()}, sizeof(pid_t));
        _exit(recv(wire, &over, 1, 0) != 1);
    }
    pause();
}

static void death(void)
{
    a_name("");
    struct other other = start(maker);
    struct fid_av *none;
    pid_t heir;
    int status;
    hear(other.wire, &heir, sizeof(heir));
    open_here();
    struct fid_av *reads = a_vector(a_name("death"), FI_AV_TABLE, FI_READ);
    struct fid_av *writes = a_vector(a_name("death"), FI_AV_TABLE, 0);
    NEED(kill(other.pid, SIGKILL));
    NEED(waitpid(other.pid, &status, 0) != other.pid);
    NEED(kill(heir, 0));
    IS(who(reads, 0), 21);
    IS(add(writes, 22), 1);
    IS(who(reads, 1), 22);
    IS(try_vector(a_name("death"), FI_AV_TABLE, FI_READ, &none), -FI_ENOENT);
    struct fid_av *made = a_vector(a_name("death"), FI_AV_TABLE, 0);
    IS(who(made, 0), 0);
    IS(add(made, 23), 0);
    IS(who(reads, 0), 21);
    say(other.wire, "x", 1);
    close(other.wire);
    IS(fi_close(&reads->fid), 0);
    IS(fi_close(&writes->fid), 0);
    IS(fi_close(&made->fid), 0);
    close_domain();
    leaves_nothing();
}

enum { WRITERS = 4, EACH = 500 };

/* Opens the vector at the same time as others, and puts its own peers there. */
static void writer(int wire)
{
    uint32_t first;
    fi_addr_t numbers[EACH];
    hear(wire, &first, sizeof(first));
    open_here();
    say(wire, "r", 1);
    char go;
    hear(wire, &go, 1);
    struct fid_av *av = a_vector(a_name("writers"), kind, 0);
    for (uint32_t i = 0; i < EACH; i++) {
        numbers[i] = add(av, first + i);
        if (i % 5 == 4) {
            /* It is somebody else's now. */
            IS(fi_av_remove(av, &numbers[i], 1, 0), 0);
            numbers[i] = add(av, first + i);
        }
    }
    say(wire, numbers, sizeof(numbers));
    hear(wire, &go, 1);
    IS(fi_close(&av->fid), 0);
    close_domain();
}

static void writers(void)
{
    a_name("");
    for (kind = FI_AV_MAP; kind <= FI_AV_TABLE; kind++) {
        struct other all[WRITERS];
        static fi_addr_t numbers[WRITERS][EACH];
        static int taken[WRITERS * EACH];
        char ready;
        memset(taken, 0, sizeof(taken));
        for (uint32_t i = 0; i < WRITERS; i++) {
            all[i] = start(writer);
            say(all[i].wire, &(uint32_t){1 + i * EACH}, sizeof(uint32_t));
            hear(all[i].wire, &ready, 1);
        }
        for (int i = 0; i < WRITERS; i++)
            say(all[i].wire, "g", 1);
        for (int i = 0; i < WRITERS; i++)
            hear(all[i].wire, numbers[i], sizeof(numbers[i]));
        open_here();
        struct fid_av *av = a_vector(a_name("writers"), kind, FI_READ);
        for (uint32_t i = 0; i < WRITERS; i++)
            for (uint32_t j = 0; j < EACH; j++) {
                uint32_t place = (uint32_t) numbers[i][j];
                HOLDS(place < WRITERS * EACH && taken[place]++ == 0);
                IS(who(av, numbers[i][j]), 1 + i * EACH + j);
            }
        IS(fi_close(&av->fid), 0);
        close_domain();
        for (int i = 0; i < WRITERS; i++) {
            say(all[i].wire, "o", 1);
            ended(&all[i]);
        }
    }
}

/* The memory of a vector, as whoever is of the same user can write to it. */
static uint64_t *memory_of(size_t *words)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    uint64_t *found = MAP_FAILED;
    NEED(folder == NULL);
    while ((entry = readdir(folder))) {
        char path[300], link[300] = {0};
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, link, sizeof(link) - 1) > 0 && strstr(link, "hawser table")) {
            int file = open(path, O_RDWR);
            off_t length = lseek(file, 0, SEEK_END);
            found = mmap(NULL, (size_t) length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            *words = (size_t) length / 8;
            close(file);
        }
    }
    closedir(folder);
    NEED(found == MAP_FAILED);
    return found;
}

/* Whatever is written there, calls end, and say what they may say. */
static void rubbish(void)
{
    char name[48];
    fi_addr_t number;
    size_t words = 0;
    struct fid_av *reads;
    open_here();
    struct fid_av *av = a_vector(a_name("rubbish"), FI_AV_MAP, 0);
    for (uint32_t i = 1; i <= 8; i++)
        add(av, i);
    uint64_t *memory = memory_of(&words), seed = 88172645463325252u;
    service(name, 9);
    for (int round = 0; round < 3000; round++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        size_t area = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 512 : 512 + (words - 512) / 9;
        memory[area + (seed >> 8) % 512] = seed % 5 ? seed : seed >> 56;
        for (uint64_t place = 0; place < 10; place++)
            who(av, place | (seed & 0xF) << 32);
        if (round % 100 == 0) {
            int code = fi_av_insert(av, name, 1, &number, 0, NULL);
            HOLDS(code == 1 || (code == 0 && number == FI_ADDR_NOTAVAIL));
            code = fi_av_remove(av, &number, 1, 0);
            HOLDS(code == 0 || code == -FI_EINVAL);
            code = try_vector(a_name("rubbish"), FI_AV_UNSPEC, FI_READ, &reads);
            HOLDS(code == 0 || code == -FI_EINVAL || code == -FI_EACCES);
            if (code == 0)
                IS(fi_close(&reads->fid), 0);
        }
    }
    NEED(munmap(memory, words * 8));
    IS(fi_close(&av->fid), 0);
    av = a_vector(a_name("rubbish"), FI_AV_MAP, 0);
    IS(who(av, add(av, 1)), 1);
    IS(fi_close(&av->fid), 0);
    close_domain();
}

static int squat(const char *text)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t length = strlen(text);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    memcpy(at.sun_path + 1, text, length);
    NEED(bind(fd, (struct sockaddr *) &at, (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + length)));
    return fd;
}

/* A name that is somebody else's, who says what is not so. */
static void squatters(void)
{
    struct fid_av *none;
    const char *name = a_name("squatters");
    uint64_t digest = 0xCBF29CE484222325u;
    char before[64], text[108];
    int ends[2], squats[5];
    open_here();
    for (const char *byte = name; *byte; byte++)
        digest = (digest ^ (uint8_t) *byte) * 0x100000001B3u;
    snprintf(before, sizeof(before), "hawser table %x %016llx", geteuid(), (unsigned long long) digest);
    squats[0] = squat(before);
    IS(try_vector(name, FI_AV_TABLE, FI_READ, &none), -FI_EACCES);
    IS(try_vector(name, FI_AV_TABLE, 0, &none), -FI_EACCES);
    struct stat holder;
    NEED(fstat(squats[0], &holder));
    NEED(pipe(ends));
    const char *lies[] = {"", "x y z w", "1 0 1 1"};
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof(text), "%s %lx %s", before, (unsigned long) holder.st_ino, lies[i]);
        squats[1 + i] = squat(text);
    }
    IS(try_vector(name, FI_AV_TABLE, FI_READ, &none), -FI_EACCES);
    /* A pipe that nobody writes to, in the place of a file. */
    snprintf(text, sizeof(text), "%s %lx %x %x d f00d", before, (unsigned long) holder.st_ino, getpid(), ends[0]);
    squats[4] = squat(text);
    IS(try_vector(name, FI_AV_TABLE, FI_READ, &none), -FI_EACCES);
    IS(try_vector(name, FI_AV_TABLE, 0, &none), -FI_EACCES);
    close(squats[0]);
    /* The lies are told still; what is so is found among them. */
    struct fid_av *made = a_vector(name, FI_AV_TABLE, 0), *reads = a_vector(name, FI_AV_TABLE, FI_READ);
    IS(who(reads, add(made, 31)), 31);
    IS(fi_close(&made->fid), 0);
    IS(fi_close(&reads->fid), 0);
    for (int i = 1; i < 5; i++)
        close(squats[i]);
    close(ends[0]);
    close(ends[1]);
    close_domain();
}

int main(int argc, char **argv)
{
    static const struct one_case all[] = {
        {"messages", messages}, {"calls", calls}, {"death", death}, {"writers", writers}, {"rubbish", rubbish},
        {"squatters", squatters},
    };
    if (argc < 2)
        return 2;
    setbuf(stdout, NULL);
    caps = FI_MSG | FI_TAGGED;
    RUN(all, argv[1]);
    return verdict();
}
