/* Runs a command under a filter of system calls as containers have one: what is refused fails with EPERM.
 *
 * usage: sandbox usual|strict COMMAND [ARGUMENT…]
 *
 * usual: what Docker and Podman refuse to a process without capabilities. strict: and what cautious profiles refuse
 * besides, which processes of one job want of each other: memory of others, and memory without a name. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int usual[] = {
    SYS_acct, SYS_add_key, SYS_bpf, SYS_fanotify_init, SYS_fsconfig, SYS_fsmount, SYS_fsopen, SYS_get_mempolicy,
    SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup, SYS_kcmp, SYS_keyctl, SYS_lookup_dcookie,
    SYS_mbind, SYS_mount, SYS_move_mount, SYS_move_pages, SYS_name_to_handle_at, SYS_open_by_handle_at,
    SYS_open_tree, SYS_perf_event_open, SYS_pidfd_getfd, SYS_pivot_root, SYS_process_madvise, SYS_quotactl,
    SYS_request_key, SYS_set_mempolicy, SYS_setns, SYS_syslog, SYS_umount2, SYS_unshare, SYS_userfaultfd, SYS_vhangup,
};
static const int also_strict[] = { SYS_memfd_create, SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace };

enum { MOST = 128 };
static struct sock_filter steps[MOST];
static unsigned short count;

static void add(struct sock_filter step) { steps[count++] = step; }

static void refuse(const int *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1));
        add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    }
}

int main(int argc, char **argv)
{
    struct sock_fprog filter = { .filter = steps };
    int strict;

    if (argc < 3 || ((strict = strcmp(argv[1], "strict") == 0) == 0 && strcmp(argv[1], "usual") != 0))
        return 2;
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    refuse(usual, sizeof usual / sizeof *usual);
    if (strict)
        refuse(also_strict, sizeof also_strict / sizeof *also_strict);
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    filter.len = count;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        perror("sandbox");
        return 2;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 2;
}
