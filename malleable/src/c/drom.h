/* Converts masks between the form of the programs' interfaces and the form that is sent. */
#ifndef RMS_DROM_H
#define RMS_DROM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether a mask of this many bytes is valid. */
bool rms_is_mask(const unsigned char *mask, size_t n_bytes);

void rms_bytes_of_mask(const uint64_t *words, unsigned char *mask, size_t n_bytes);

#endif
