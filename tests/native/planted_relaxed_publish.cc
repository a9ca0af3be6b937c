// A page cache whose publish() forgets its release. Nothing goes wrong on x86, so only TSan can tell: `make sanitize`
// fails when it does not report a race here.
#include "stress_cache.h"

namespace {

struct RelaxedPlatform : bam::HostPlatform {
  static constexpr std::memory_order release = std::memory_order_relaxed;
};

}  // namespace

int main() {
  const stress::CacheLoad load{bam::Policy::clock, 6, 18, 6, 4000};
  return stress::run_tests({{"planted: relaxed publish", [&](stress::Checks& checks) {
                               return stress::stress_cache<RelaxedPlatform>(load, checks);
                             }}});
}
