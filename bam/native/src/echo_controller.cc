// Answers commands without reading anything: the ceiling of the queues, for benchmarks. C ABI.
#include <atomic>
#include <thread>
#include <vector>

#include "bam/queue_pair.h"
#include "guard.h"

namespace bam {
namespace {

using P = HostPlatform;

struct EchoQueue {
  QueuePairState state;
  ControllerCursor cursor{};
};

class EchoController {
 public:
  explicit EchoController(const std::vector<QueuePairState>& queues) {
    for (const QueuePairState& queue : queues) queues_.push_back({queue});
    thread_ = std::thread([this] { run(); });
  }
  ~EchoController() {
    stopping_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

 private:
  void run() {
    while (!stopping_.load(std::memory_order_relaxed)) {
      uint32_t answered = 0;
      for (EchoQueue& queue : queues_) answered += answer(queue);
      if (answered == 0) std::this_thread::yield();
    }
  }

  static uint32_t answer(EchoQueue& queue) {
    uint32_t waiting = commands_waiting<P>(queue.state, queue.cursor);
    if (waiting == kInvalidDoorbell) return 0;
    uint32_t answered = 0;
    for (; answered < waiting && can_post<P>(queue.state, queue.cursor); answered++) {
      uint16_t cid = queue.state.sq[slot_of(queue.state, queue.cursor.fetched++)].cid;
      post_completion<P>(queue.state, queue.cursor, {cid, status_field(Status::success), 0, 0});
    }
    return answered;
  }

  std::vector<EchoQueue> queues_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace
}  // namespace bam

extern "C" {

// One thread answers the queue pairs until it is destroyed; their memory must outlive it.
void* bam_echo_create(const bam::QueuePairState* pairs, uint32_t n_pairs) {
  return bam::guarded(static_cast<void*>(nullptr),
                      [&]() -> void* { return new bam::EchoController({pairs, pairs + n_pairs}); });
}

void bam_echo_destroy(void* handle) { delete static_cast<bam::EchoController*>(handle); }

}  // extern "C"
