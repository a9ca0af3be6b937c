// The GPU's kernels on warps whose sync_warp() orders no memory, as a shuffle does not: TSan must report a race.
#include "stress_gpu.h"

int main() {
  return stress::run_tests({{"planted: unfenced warp", [](stress::Checks& checks) {
                               return stress::stress_gpu<stress::ThreadedGpu<false>>(4, checks);
                             }}});
}
