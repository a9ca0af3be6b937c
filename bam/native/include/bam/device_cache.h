// One step of a page cache by a warp: how tests drive the GPU's cache, look-up by look-up, beside the plain one.
#pragma once

#include "bam/device_look_up.h"

namespace bam {

enum class CacheAction : uint64_t { acquire, publish, fail, unpin, note_use, forget_uses };

struct CacheStep {
  CacheAction action;
  uint64_t subject;  // page of acquire and note_use, line of publish, fail and unpin, horizon of forget_uses
  uint64_t value;    // next use, errno, or what to forget uses for
};
static_assert(sizeof(CacheStep) == 24, "ABI");

// By a whole warp; `got` is written for acquire alone.
template <class P>
BAM_HD void run_cache_step(const CacheState& cache, const CacheStep& step, Acquired* got) {
  if (step.action == CacheAction::acquire) {
    Acquired found = look_up<P>(cache, step.subject, step.value, P::lane() == 0, true);
    if (P::lane() == 0) *got = found;
    return;
  }
  if (P::lane() != 0) return;
  switch (step.action) {
    case CacheAction::acquire: return;
    case CacheAction::publish: return publish<P>(cache.lines[step.subject]);
    case CacheAction::fail: return fail_with<P>(cache, step.subject, step.value);
    case CacheAction::unpin: return unpin<P>(cache.lines[step.subject]);
    case CacheAction::note_use: return note_use<P>(cache, step.subject, step.value);
    case CacheAction::forget_uses: return forget_uses<P>(cache, step.subject, step.value);
  }
}

}  // namespace bam
