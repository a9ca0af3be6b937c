// What the kernels of the GPU's read path share: page cache, queues, staging, and the flights of reads.
//
// A *slot* is a page of pinned host memory that a command reads into. A *flight* is a part of a batch of rows: it has
// slots, a piece of a row (its share of one page) for each, and counts its commands. While one flight is being
// drained the commands of the next are in the queues. The last slots belong to no flight: device-side arrays
// (array.cuh) take them one by one.
//
//   submit_rows   looks pages up, writes commands         device_look_up.h, device_submit.h
//   drain_flight  one block waits for the completions     this file
//   fill_lines    fresh pages: staging -> cache line      device_gather.h
//   gather_rows   rows -> output; pins drop; the report   device_gather.h
//
// Kernels of one store run one after the other, in stream order, so each finds what the one before has written.
#pragma once

#include "bam/data_pointer.h"
#include "bam/page_cache.h"
#include "bam/queue_pair.h"

namespace bam {

constexpr uint32_t kWarp = 32;
// Of Linux, which NVRTC does not know.
constexpr uint32_t kIoError = 5, kOutOfRange = 34, kTimedOut = 110;
// Of a read whose command was not completed; and of one that nobody waits for any more, whose slot its completion frees.
constexpr uint64_t kPending = ~uint64_t{0}, kAbandoned = kPending - 1;
constexpr uint32_t kNoPiece = ~uint32_t{0};

// How a read ended: 0, or `number of the controller's error record << 32 | errno`; kPending before. A drive has no
// error records: then it is kDriveStatus with the status (`type << 8 | code`).
using ReadResult = uint64_t;
constexpr ReadResult kDriveStatus = uint64_t{1} << 31;

// Counters of a flight. All zero before its first command, but for `first_failed` (kNoPiece).
struct Flight {
  uint32_t looked_up;     // pieces whose commands, if any, are published
  uint32_t submitted;     // commands
  uint32_t completed;
  uint32_t first_failed;  // smallest number of a piece whose bytes are not there
  uint32_t stuck;         // commands are outstanding after a time-out: slots must not be used again
  uint32_t gathered;      // blocks
  uint32_t hits, joins, claims, bypasses;
  uint32_t constant_rows;
  uint32_t left;          // pieces that submit_rows did not copy: gather_rows does
  uint32_t wants_credit;  // somebody found a queue full
  uint32_t reserved[3];
};
static_assert(sizeof(Flight) == 64, "ABI");

// What the host learns of a flight; in pinned memory.
struct FlightReport {
  uint64_t result;     // of the first piece that failed; 0: all bytes are there
  uint64_t page_id;    // of it
  uint64_t row;        // of it, position in the batch
  uint32_t submitted;
  uint32_t hits, joins, claims, bypasses;
  uint32_t constant_rows;
};
static_assert(sizeof(FlightReport) == 48, "ABI");

struct DeviceStore {
  CacheState cache;          // n_sets 0: no cache, each piece reads for itself
  uint8_t* lines;
  QueuePairState* queues;
  uint32_t* owners;          // slot of each outstanding command: queue * depth + command id
  uint8_t* staging;          // pinned host memory, a page a slot
  ReadResult* results;       // of each slot
  uint64_t* sources;         // where the bytes of each piece are; by slot
  Flight* flights;
  uint32_t* lone_slots;      // 1: taken, also by a read that came too late and has not come yet
  uint64_t* failure;         // of device-side arrays: the first failed read's result, and its page
  const DataPointer* pointers;  // a drive's, to each slot; null: the software controller takes the slot's address
  uint64_t first_block;      // of page 0 in the namespace
  uint64_t n_blocks;         // of all pages
  uint64_t timeout_ns;       // without progress
  uint32_t n_queues;
  uint32_t n_flights;
  uint32_t slots_per_flight;
  uint32_t n_lone_slots;
  uint32_t page_shift;       // page_bytes = 1 << page_shift
  uint32_t block_shift;      // the same of the namespace's blocks
  uint32_t nsid;
  uint32_t reserved;
};
static_assert(sizeof(DeviceStore) == 208, "ABI");

BAM_HD inline uint8_t* slot_bytes(const DeviceStore& store, uint64_t slot) {
  return store.staging + (slot << store.page_shift);
}
// Of a line that is pinned.
template <class P>
BAM_HD uint8_t* line_bytes(const DeviceStore& store, uint64_t line_id) {
  const Frames& frames = store.cache.frames;
  uint64_t place = frames.of_line == nullptr ? line_id : uint64_t{load_frame<P>(frames, line_id)} - 1;
  return store.lines + (place << store.page_shift);
}

BAM_HD inline uint32_t count_bits(uint32_t mask) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__popc(static_cast<int>(mask)));
#else
  return static_cast<uint32_t>(__builtin_popcount(mask));
#endif
}
// Number of the lowest bit that is set; not of 0.
BAM_HD inline uint32_t lowest_bit(uint32_t mask) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__ffs(static_cast<int>(mask)) - 1);
#else
  return static_cast<uint32_t>(__builtin_ctz(mask));
#endif
}

// The Read of a page into a slot. The last page may reach past the end of the namespace.
BAM_HD inline Sqe page_command(const DeviceStore& store, uint16_t cid, uint64_t page_id, uint64_t slot) {
  uint32_t blocks_per_page = 1u << (store.page_shift - store.block_shift);
  uint64_t first = page_id * blocks_per_page, left = store.n_blocks - first;
  uint32_t n_blocks = left < blocks_per_page ? static_cast<uint32_t>(left) : blocks_per_page;
  DataPointer data{reinterpret_cast<uint64_t>(slot_bytes(store, slot)), 0, 0};
  if (store.pointers != nullptr) data = store.pointers[slot];
  // An SGL says how long the transfer is; PRP entries beyond it are not looked at.
  if (data.flags == kSglFlag) data.second = uint64_t{n_blocks} << store.block_shift;
  return transfer_command(Opcode::read, cid, store.nsid, store.first_block + first, n_blocks, data);
}

BAM_HD inline ReadResult result_of(const DeviceStore& store, const Completion& completion) {
  if (succeeded(completion.status)) return 0;
  if (store.pointers != nullptr) return kDriveStatus | status_of(completion.status);
  return uint64_t{completion.dw1} << 32 | (completion.dw0 != 0 ? completion.dw0 : kIoError);
}

BAM_HD inline uint32_t first_lone_slot(const DeviceStore& store) { return store.n_flights * store.slots_per_flight; }

template <class P>
BAM_HD void free_lone_slot(const DeviceStore& store, uint32_t slot) {
  // release: pairs with the acquire in take_lone_slot()
  typename P::template Atomic<uint32_t>(store.lone_slots[slot - first_lone_slot(store)]).store(0, P::release);
}

// Notes how the read of an outstanding command ended. Returns its slot.
template <class P>
BAM_HD uint32_t note_completion(const DeviceStore& store, uint32_t queue, const Completion& completion) {
  uint32_t slot = store.owners[queue * store.queues[queue].depth + completion.cid];
  ReadResult found = result_of(store, completion);
  typename P::template Atomic<ReadResult> result(store.results[slot]);
  // release: pairs with the acquire of whoever waits for a lone slot (read_alone), and of result_in() for a flight's
  // that was given up; other flights' are covered by count_completed()
  if (slot < first_lone_slot(store)) result.store(found, P::release);
  else if (result.exchange(found, P::release) == kAbandoned) free_lone_slot<P>(store, slot);
  return slot;
}

// Commands of a flight whose results, by whichever threads of a warp, were noted before a sync_warp().
template <class P>
BAM_HD void count_completed(const DeviceStore& store, uint32_t flight, uint32_t count) {
  // release: pairs with the acquire in load_counter() by drain_flight(): who sees all of a flight's commands counted,
  // and the kernels after it, see their results, whichever kernel of whichever stream drained them
  typename P::template Atomic<uint32_t>(store.flights[flight].completed).fetch_add(count, P::release);
}

// A whole warp drains one queue, 32 completions at a time, unless somebody else is draining it. Returns how many it
// found, to every lane. A completion is polled over PCIe (4 us): one lane alone would be sixteen times slower.
template <class P>
BAM_HD uint32_t drain_queue(const DeviceStore& store, uint32_t number) {
  const QueuePairState queue = store.queues[number];
  uint32_t lane = P::lane();
  bool locked = lane == 0 && try_lock_drain<P>(queue);
  if (P::ballot(locked) == 0) return 0;
  P::sync_warp();  // what lane 0 acquired with the lock holds for all lanes; a ballot or a shuffle orders no memory
  uint64_t first = lane == 0 ? typename P::template Atomic<uint64_t>(queue.words->completed).load(P::relaxed) : 0;
  first = P::shuffle(first, 0);
  uint32_t count = 0, run = kWarp;
  for (uint32_t round = 0; round < 4 && run == kWarp; round++) {
    uint64_t k = first + count + lane;
    Completion completion{};
    uint32_t gaps = ~P::ballot(poll_completion<P>(queue, k, completion));
    run = gaps == 0 ? kWarp : lowest_bit(gaps);
    bool mine = lane < run;
    if (mine && !succeeded(completion.status)) read_details<P>(queue, k, completion);
    uint32_t flight = ~0u;
    if (mine) {
      flight = note_completion<P>(store, number, completion) / store.slots_per_flight;
      recycle_cid(queue, k, completion.cid);
    }
    uint32_t peers = P::match(~0u, flight);
    P::sync_warp();  // the peers' results are part of the release in count_completed()
    if (mine && flight < store.n_flights && lowest_bit(peers) == lane)
      count_completed<P>(store, flight, count_bits(peers));
    count += run;
  }
  P::sync_warp();  // the other lanes' command ids and results are part of the release below
  if (lane == 0) {
    if (count != 0) return_credit<P>(queue, first + count);
    unlock_drain<P>(queue);
  }
  return count;
}

// One turn of a block over all queues. True, to every thread, when any completion was found.
template <class P>
BAM_HD bool drain_all(const DeviceStore& store) {
  uint32_t found = 0;
  for (uint32_t queue = P::thread() / kWarp; queue < store.n_queues; queue += P::threads() / kWarp)
    found += drain_queue<P>(store, queue);
  return P::any_in_block(found != 0);
}

template <class P>
BAM_HD uint32_t load_counter(uint32_t& counter) {
  // acquire: pairs with the release in count_completed()
  return typename P::template Atomic<uint32_t>(counter).load(P::acquire);
}

// The word becomes `value` unless it is smaller already.
template <class P>
BAM_HD void lower_to(uint32_t& word, uint32_t value) {
  typename P::template Atomic<uint32_t> atomic(word);
  uint32_t seen = atomic.load(P::relaxed);
  while (value < seen && !atomic.compare_exchange_weak(seen, value, P::relaxed, P::relaxed)) {
  }
}

// One block drains until `done()`, which thread 0 is asked, or until nothing has happened for `timeout_ns`: false.
template <class P, class Done>
BAM_HD bool drain_until(const DeviceStore& store, uint64_t timeout_ns, Done&& done) {
  uint64_t last_news = P::now_ns();
  for (uint32_t quiet = 0;;) {
    bool news = drain_all<P>(store);
    if (P::any_in_block(P::thread() == 0 && done())) return true;
    uint64_t now = P::now_ns();
    if (news) last_news = now;
    if (P::any_in_block(P::thread() == 0 && now - last_news > timeout_ns)) return false;
    // backs off, up to about 3 us: a poll is a read over PCIe, which the data needs as well
    quiet = news ? 0 : quiet + 1;
    for (uint32_t turn = 0; turn < (quiet < 32 ? quiet : 32); turn++) P::pause();
  }
}

// Kernel of one block: waits until every command of the flight has completed. After a time-out the flight is stuck,
// until a later call finds that its commands have completed after all.
template <class P>
BAM_HD void drain_flight(const DeviceStore& store, uint32_t number) {
  Flight& flight = store.flights[number];
  auto completed = [&] { return load_counter<P>(flight.completed) == load_counter<P>(flight.submitted); };
  bool done = P::any_in_block(P::thread() == 0 && completed());  // all were hits
  // one that is stuck has had its time
  if (!done) done = drain_until<P>(store, flight.stuck != 0 ? 0 : store.timeout_ns, completed);
  if (P::thread() == 0) flight.stuck = done ? 0 : 1;
}

}  // namespace bam
