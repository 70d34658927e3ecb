//! The tables of what an endpoint is not opened for, and of what there is not: all their functions are.

use super::super::nosys;
use super::super::nosys::size::{
    eight, eleven, four, fourteen, nine, seven, six, sixteen, ten, thirteen, three, twelve,
};
use super::super::sys::{fi_ops_atomic, fi_ops_cm, fi_ops_collective, fi_ops_rma};

pub(in super::super) static NAMES: fi_ops_cm = NO_NAME;

/// What an object begins with that has more.
pub(super) const NO_NAME: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: Some(nosys::three),
    getname: Some(nosys::three),
    getpeer: Some(nosys::three),
    connect: Some(nosys::four),
    listen: Some(nosys::one),
    accept: Some(nosys::three),
    reject: Some(nosys::four),
    shutdown: Some(nosys::two),
    join: Some(nosys::five),
};

pub(in super::super) static MEMORY: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(eight),
    readv: Some(eight),
    readmsg: Some(three),
    write: Some(eight),
    writev: Some(eight),
    writemsg: Some(three),
    inject: Some(six),
    writedata: Some(nine),
    injectdata: Some(seven),
};

pub(in super::super) static ATOMIC: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(ten),
    writev: Some(ten),
    writemsg: Some(three),
    inject: Some(eight),
    readwrite: Some(twelve),
    readwritev: Some(thirteen),
    readwritemsg: Some(six),
    compwrite: Some(fourteen),
    compwritev: Some(sixteen),
    compwritemsg: Some(nine),
    writevalid: Some(nosys::four),
    readwritevalid: Some(nosys::four),
    compwritevalid: Some(nosys::four),
};

pub(in super::super) static COLLECTIVE: fi_ops_collective = fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    barrier: Some(three),
    broadcast: Some(nine),
    alltoall: Some(ten),
    allreduce: Some(eleven),
    allgather: Some(ten),
    reduce_scatter: Some(eleven),
    reduce: Some(twelve),
    scatter: Some(eleven),
    gather: Some(eleven),
    msg: Some(six),
    barrier2: Some(four),
};
