// Rings and threads do not survive a fork. What was made before one must not be used, waited for or unmapped in the
// child.
#pragma once

#include <cstdint>

namespace bam {

// Number of forks between the first process that loaded the library and this one.
uint32_t fork_generation();

// Remembers the process it was made in.
class ForkGuard {
 public:
  bool forked() const { return generation_ != fork_generation(); }

 private:
  uint32_t generation_ = fork_generation();
};

}  // namespace bam
