// Memory that may be locked for registered buffers.
//
// The kernel counts them, and (depending on its version) rings too, against RLIMIT_MEMLOCK of the user. Buffers that
// used all of it would keep later channels from getting a ring at all, so they get half.
#pragma once

#include <cstddef>

namespace bam {

// Whether `bytes` more may be registered by this process. They count until give_back_locked().
bool take_locked(size_t bytes);
void give_back_locked(size_t bytes);

}  // namespace bam
