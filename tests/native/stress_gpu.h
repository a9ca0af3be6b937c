// The GPU's kernels with a thread of the host for each of theirs. What orders memory there does so here, and nothing
// else: a ballot, a shuffle and a match exchange values by relaxed atomics, so TSan reports what relies on more.
#pragma once

#include <memory>

#include "bam/device_gather.h"
#include "bam/device_lone.h"
#include "bam/device_submit.h"
#include "stress_cache.h"

namespace stress {

// Where the threads of a warp or block wait for each other.
class Meeting {
 public:
  explicit Meeting(uint32_t members) : members_(members) {}

  // Returns what each member brought; valid until this thread comes again.
  template <bool ordered>
  const std::atomic<uint64_t>* meet(uint32_t member, uint64_t value) {
    constexpr auto last = ordered ? std::memory_order_acq_rel : std::memory_order_relaxed;
    constexpr auto open = ordered ? std::memory_order_release : std::memory_order_relaxed;
    constexpr auto wait = ordered ? std::memory_order_acquire : std::memory_order_relaxed;
    uint32_t generation = generation_.load(std::memory_order_relaxed);
    // Two sets in turn: whoever is early next time does not write over what others still read.
    std::atomic<uint64_t>* values = values_[generation & 1];
    values[member].store(value, std::memory_order_relaxed);
    if (arrived_.fetch_add(1, last) + 1 == members_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, open);
    } else {
      while (generation_.load(wait) == generation) std::this_thread::yield();
    }
    return values;
  }

 private:
  const uint32_t members_;
  std::atomic<uint32_t> arrived_{0}, generation_{0};
  std::atomic<uint64_t> values_[2][bam::kWarp] = {};
};

// Of a thread in a grid of blocks of one warp.
struct Place {
  uint32_t lane, block, blocks;
  Meeting* warp;
};
inline thread_local Place place{0, 0, 1, nullptr};

// `fenced`: sync_warp() orders memory, as it does on a GPU.
template <bool fenced>
struct ThreadedGpu : bam::HostPlatform {
  static constexpr bool kWritesAreCheap = true;
  static uint64_t now_ns() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  static uint32_t lane() { return place.lane; }
  static uint32_t thread() { return place.lane; }
  static uint32_t threads() { return bam::kWarp; }
  static uint32_t block() { return place.block; }
  static uint32_t blocks() { return place.blocks; }

  static uint32_t ballot(bool vote) { return match_to(exchange(vote ? 1 : 0), 1); }
  template <class T>
  static T shuffle(T value, uint32_t from) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = exchange(bits)[from].load(std::memory_order_relaxed);
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  // Only whole warps meet; a lane that reads items by itself is alone.
  template <class T>
  static T shuffle_among(uint32_t mask, T value, uint32_t from) {
    return mask == ~0u ? shuffle(value, from) : value;
  }
  static uint32_t match(uint32_t mask, uint64_t value) {
    return mask == ~0u ? match_to(exchange(value), value) : mask;
  }
  static uint32_t converged() { return place.warp != nullptr ? ~0u : 1u << place.lane; }
  static void sync_warp(uint32_t mask = ~0u) {
    if (mask == ~0u) place.warp->meet<fenced>(place.lane, 0);
  }
  static bool any_in_block(bool vote) {
    return match_to(place.warp->meet<true>(place.lane, vote ? 1 : 0), 1) != 0;
  }
  template <class T>
  static T load_fresh(const T* from) { return *from; }
  template <class T>
  static T load_once(const T* from) { return *from; }
  template <class T>
  static void store_once(T* to, const T& value) { *to = value; }

 private:
  static const std::atomic<uint64_t>* exchange(uint64_t value) { return place.warp->meet<false>(place.lane, value); }
  static uint32_t match_to(const std::atomic<uint64_t>* values, uint64_t value) {
    uint32_t equal = 0;
    for (uint32_t lane = 0; lane < bam::kWarp; lane++)
      equal |= values[lane].load(std::memory_order_relaxed) == value ? 1u << lane : 0;
    return equal;
  }
};

// A launch, waited for: what the next one of its stream does comes after it.
inline void run_kernel(uint32_t blocks, const std::function<void()>& body) {
  std::vector<std::unique_ptr<Meeting>> warps;
  for (uint32_t block = 0; block < blocks; block++) warps.push_back(std::make_unique<Meeting>(bam::kWarp));
  run_threads(blocks * bam::kWarp, [&](uint32_t thread) {
    uint32_t block = thread / bam::kWarp;
    place = {thread % bam::kWarp, block, blocks, warps[block].get()};
    body();
  });
}

constexpr uint32_t kGpuPages = 60, kGpuQueues = 2, kGpuDepth = 16, kGpuSlots = 64, kGpuLone = 3, kGpuLines = 16;

// A store of pages that are rows, and the controller that answers it.
struct GpuStore {
  GpuStore() {
    for (uint32_t number = 0; number < kGpuQueues; number++) {
      uint32_t at = number * kGpuDepth;
      queues[number] = {&sq[at], &cq[at], &doorbells[2 * number], &doorbells[2 * number + 1], &words[number],
                        &free_cids[at], kGpuDepth, number};
      bam::init_queue_pair(queues[number]);
    }
    flight.first_failed = bam::kNoPiece;
    store.cache = {line_words, metas, sets, 2, kGpuLines / 2, bam::Policy::clock, 1, {}};
    store.lines = lines.data();
    store.queues = queues;
    store.owners = owners;
    store.staging = staging.data();
    store.results = results;
    store.sources = sources;
    store.flights = &flight;
    store.lone_slots = lone_slots;
    store.failure = failure;
    store.n_blocks = kGpuPages;
    store.timeout_ns = 60'000'000'000;
    store.n_queues = kGpuQueues;
    store.n_flights = 1;
    store.slots_per_flight = kGpuSlots;
    store.n_lone_slots = kGpuLone;
    store.page_shift = store.block_shift = 9;
    store.nsid = 1;
  }

  // Until `done`.
  void answer(const std::atomic<bool>& done) {
    bam::ControllerCursor cursors[kGpuQueues] = {};
    while (!done.load()) {
      for (uint32_t number = 0; number < kGpuQueues; number++) {
        for (uint32_t left = bam::commands_waiting<bam::HostPlatform>(queues[number], cursors[number]); left != 0; left--) {
          bam::Sqe sqe = bam::fetch_command(queues[number], cursors[number]);
          fill_page(bam::start_block(sqe), reinterpret_cast<uint8_t*>(sqe.prp1));
          bam::post_completion<bam::HostPlatform>(queues[number], cursors[number],
                                                  {sqe.cid, bam::status_field(bam::Status::success), 0, 0});
        }
      }
      std::this_thread::yield();
    }
  }

  bam::DeviceStore store{};
  bam::QueuePairState queues[kGpuQueues];
  bam::Sqe sq[kGpuQueues * kGpuDepth] = {};
  bam::CqeWords cq[kGpuQueues * kGpuDepth] = {};
  uint32_t doorbells[2 * kGpuQueues] = {};
  bam::QueueWords words[kGpuQueues] = {};
  uint16_t free_cids[kGpuQueues * kGpuDepth] = {};
  uint32_t owners[kGpuQueues * kGpuDepth] = {};
  bam::LineWord line_words[kGpuLines] = {};
  uint64_t metas[kGpuLines] = {};
  bam::SetState sets[2] = {};
  bam::Flight flight{};
  bam::ReadResult results[kGpuSlots + kGpuLone] = {};
  uint64_t sources[kGpuSlots + kGpuLone] = {};
  uint32_t lone_slots[kGpuLone] = {};
  uint64_t failure[2] = {};
  std::vector<uint8_t> lines = std::vector<uint8_t>(kGpuLines * kPageBytes);
  std::vector<uint8_t> staging = std::vector<uint8_t>((kGpuSlots + kGpuLone) * kPageBytes);
};

// Gathers on one stream, while threads of kernels on others read items and drain whatever they find.
template <class P>
std::string stress_gpu(uint32_t n_batches, Checks& checks) {
  auto memory = std::make_unique<GpuStore>();
  const bam::DeviceStore& store = memory->store;
  std::atomic<bool> gathered{false}, done{false};
  std::atomic<uint64_t> n_items{0}, n_drained{0};
  std::thread controller([&] { memory->answer(done); });
  std::vector<std::thread> others;
  for (uint32_t number = 0; number < 2; number++) {
    others.emplace_back([&, number] {
      Random random(number);
      bam::ArrayView view{store, 0, kGpuPages * kPageWords};
      while (!gathered.load()) {
        uint64_t at = random.below(view.n_items);
        checks.expect(bam::read_item<P, uint64_t>(view, at) == word_of(at / kPageWords, at % kPageWords), "a wrong item");
        n_items++;
      }
    });
  }
  others.emplace_back([&] {
    for (uint32_t turn = 0; !gathered.load(); turn++) {
      n_drained += bam::drain_alone<P>(store, turn % kGpuQueues);
      std::this_thread::yield();
    }
  });
  Random random(7);
  std::vector<int64_t> ids(kGpuSlots);
  std::vector<uint8_t> out(kGpuSlots * kPageBytes);
  for (uint32_t number = 0; number < n_batches; number++) {
    for (int64_t& id : ids) id = static_cast<int64_t>(random.below(kGpuPages));
    bam::RowBatch batch{};
    batch.ids = ids.data();
    batch.n_rows = kGpuSlots;
    batch.n_parts = batch.pages_per_row = 1;
    batch.row_bytes = kPageBytes;
    batch.few_parts[0].n_rows = kGpuPages;
    batch.few_parts[0].out = out.data();
    bam::FlightReport report{};
    run_kernel(2, [&] { bam::submit_rows<P>(store, batch); });
    // Every other time the other streams drain all of it: then the count alone says that results and bytes are there.
    std::atomic_ref<uint32_t> completed(memory->flight.completed);
    while (number % 2 == 0 && completed.load(std::memory_order_relaxed) != memory->flight.submitted)
      std::this_thread::yield();
    run_kernel(1, [&] { bam::drain_flight<P>(store, 0); });
    run_kernel(1, [&] { bam::fill_lines<P>(store, batch); });
    run_kernel(1, [&] { bam::gather_rows<P>(store, batch, &report); });
    checks.expect(report.result == 0, "a gather failed");
    for (uint32_t row = 0; row < kGpuSlots; row++)
      checks.expect(holds_page(static_cast<uint64_t>(ids[row]), &out[row * kPageBytes]), "a wrong row");
  }
  gathered.store(true);
  for (std::thread& other : others) other.join();
  done.store(true);
  controller.join();
  for (bam::LineWord word : memory->line_words) checks.expect(bam::pins_of(word) == 0, "a line is left pinned");
  for (uint32_t taken : memory->lone_slots) checks.expect(taken == 0, "a slot is left taken");
  checks.expect(n_items > 0 && n_drained > 0, "the other streams did nothing");
  return std::to_string(n_batches * kGpuSlots) + " rows, " + std::to_string(n_items) + " items, " +
         std::to_string(n_drained) + " completions drained by another stream";
}

}  // namespace stress
