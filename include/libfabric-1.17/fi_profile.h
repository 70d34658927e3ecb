/*
 * Declarations that libfabric 1.17's headers lack and the C wrapper of the Rust crate
 * ofi-libfabric-sys 0.2.0 names. Nothing in hawser calls them: they let the wrapper compile.
 * A newer libfabric's own fi_profile.h is found before this one.
 */
#ifndef HAWSER_LIBFABRIC_1_17_FI_PROFILE_H
#define HAWSER_LIBFABRIC_1_17_FI_PROFILE_H

struct fid_profile;
struct fi_profile_desc;

#endif
