// The kernels of gids/fetch/native/next_uses.cu on the host, behind a C ABI (emulated_gpu.py).
#include <cstdint>

#include "next_uses.h"

extern "C" {

void gids_next_uses(uint64_t, uint64_t, const gids::UseRequest* request) {
  for (uint64_t i = 0; i < request->firsts[request->n_tables]; i++) gids::find_next_use(*request, i);
}
void gids_count_requests(uint64_t, uint64_t, const gids::UseRequest* request) {
  for (uint64_t i = 0; i < request->firsts[request->n_tables]; i++) gids::count_request(*request, i);
}
}
