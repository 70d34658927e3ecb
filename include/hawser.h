/* Generated from src/capi by `make headers`. Do not edit. */

#ifndef HAWSER_H
#define HAWSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of this library, as `major.minor.patch`. The text lives as long as the process.
const char *hawser_version(void);

// Why the Open MPI that loaded this library was refused; an empty text when it was accepted or
// when there is none. The text lives as long as the process.
const char *hawser_refusal(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HAWSER_H */
