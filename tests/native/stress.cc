// Real threads over the shared headers and the native library. Built under ASan + UBSan and under TSan by `make
// sanitize`; to stress more, add a *_tests() function and its file to the Makefile.
#include <iterator>

#include "stress.h"

int main() {
  std::vector<stress::Test> all;
  for (std::vector<stress::Test> tests : {stress::cache_tests(), stress::queue_tests(), stress::gpu_tests(),
                                        stress::library_tests(), stress::reset_tests(), stress::allocation_tests()})
    all.insert(all.end(), std::make_move_iterator(tests.begin()), std::make_move_iterator(tests.end()));
  return stress::run_tests(all);
}
