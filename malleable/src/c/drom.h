/* Masks as the interfaces for programs have them, and as they are sent. */
#ifndef RMS_DROM_H
#define RMS_DROM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether there is room for a mask, or one, of so many bytes. */
bool rms_is_mask(const unsigned char *mask, size_t n_bytes);

void rms_bytes_of_mask(const uint64_t *words, unsigned char *mask, size_t n_bytes);

#endif
