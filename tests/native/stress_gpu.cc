// The GPU's kernels beside each other, as those of several streams are.
#include "stress_gpu.h"

namespace stress {

std::vector<Test> gpu_tests() {
  return {{"kernels of several streams", [](Checks& checks) { return stress_gpu<ThreadedGpu<true>>(6, checks); }}};
}

}  // namespace stress
