# Slurm on the hosts of a network bed (c-tests/net/bed.sh): a controller on the first, a daemon on each. Sourced.
#
# Everything of it lies in /dev/shm/slurm of each host, and ends with the bed.

# slurm_start HOSTS FAMILIES: whether all hosts become idle; if not, what the daemons have said is in `log`.
slurm_start() {
    local hosts=$1 host key
    key=$(od -An -N 32 -tx1 /dev/urandom | tr -d ' \n')
    for ((host = 1; host <= hosts; host++)); do
        # shellcheck disable=SC2016 # expanded there
        bed_on "$host" sh -c '
            set -e
            umask 022
            rm -rf /dev/shm/slurm
            mkdir -p /dev/shm/slurm/state /dev/shm/slurm/spool
            cd /dev/shm/slurm
            printf "%s" "$1" >key
            chmod 600 key
            cat >slurm.conf <<END
ClusterName=bed
SlurmctldHost=node1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/dev/shm/slurm/munge
CredType=cred/munge
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
StateSaveLocation=/dev/shm/slurm/state
SlurmdSpoolDir=/dev/shm/slurm/spool
SlurmctldPidFile=/dev/shm/slurm/slurmctld.pid
SlurmdPidFile=/dev/shm/slurm/slurmd.pid
SlurmdParameters=config_overrides
ReturnToService=2
CommunicationParameters=$3
NodeName=node[1-$2] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
            # With another fence ranks leave MPI_Init while others are still in its first step (Slurm 24.11).
            echo "PMIxCollFence=ring" >mpi.conf
            case $(slurmd -V) in *" 22."*) ;; *) echo "CgroupPlugin=disabled" >cgroup.conf ;; esac
        ' sh "$key" "$hosts" "$2" || return 1
        export SLURM_CONF=/dev/shm/slurm/slurm.conf
        slurm_daemon "$host" munged --foreground --force --key-file=/dev/shm/slurm/key --socket=/dev/shm/slurm/munge \
            --pid-file=/dev/shm/slurm/munged.pid --log-file=/dev/shm/slurm/munged.log --seed-file=/dev/shm/slurm/seed
        [ "$host" != 1 ] || slurm_daemon 1 slurmctld -D
        slurm_daemon "$host" slurmd -D -N "node$host"
    done
    # shellcheck disable=SC2016 # expanded there
    bed_on 1 "$bed_root/c-tests/patience.sh" 120 sh -c '
        until [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$1" ]; do sleep 0.3; done' sh "$hosts" && return
    log=$work/logs/daemons
    cat "$work/logs/slurm-"* | tail -n 40 >"$log"
    return 1
}

# slurm_daemon HOST COMMAND…
slurm_daemon() { bed_on "$1" "${@:2}" >"$work/logs/slurm-$2-$1" 2>&1 </dev/null & }
