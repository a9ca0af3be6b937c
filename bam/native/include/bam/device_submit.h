// Looks up the pages of a flight's pieces and writes a command for each that must be read.
//
// A warp takes some pieces at a time. It probes the set of each as one (a lane a way), then every lane pins its own
// line, so the look-ups are in the memory system together. When the commands are in the queues it copies what is there
// already, so pins of hits drop at once, and reads are under way meanwhile. Block 0 drains completions until all are
// submitted, so credit always comes back.
#pragma once

#include "bam/device_copy.h"

namespace bam {

// What a look at a set without its lock shows; like peek(), nothing keeps it so.
struct Probe {
  uint64_t line_id;  // that holds the page, or kNoLine
  bool has_room;     // if none does: some line is not pinned
};

// The sets of the lanes in `wanted`, each looked at by the whole warp. The inner loops are most of what a hit costs, so
// they choose instead of branching, and look at sets nobody asked for rather than ask.
template <class P>
BAM_HD Probe probe_sets(const CacheState& cache, uint64_t page_id, uint32_t wanted) {
  constexpr uint32_t kTogether = 8;  // loads in flight of one lane
  uint64_t first = set_of(cache, page_id) * cache.ways, lines = reinterpret_cast<uint64_t>(cache.lines + first);
  LineWord key = key_of(page_id);
  uint32_t holders = 0, free = 0;  // ways of this lane's set
  uint32_t way = P::lane() < cache.ways ? P::lane() : cache.ways - 1;  // the last one several times, if they are few
  for (uint32_t begin = 0; begin < kWarp; begin += kTogether) {
    if ((wanted >> begin & ((1u << kTogether) - 1)) == 0) continue;
    LineWord words[kTogether];
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      LineWord* set = reinterpret_cast<LineWord*>(P::shuffle(lines, begin + i));
      words[i] = typename P::template Atomic<LineWord>(set[way]).load(P::relaxed);
    }
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      bool mine = P::lane() == begin + i;
      uint32_t held = P::ballot(has_key(words[i], P::shuffle(key, begin + i)));
      holders = mine ? held : holders;
      if (held != 0) continue;  // the same for all lanes
      uint32_t room = P::ballot(claimable(words[i]));
      free = mine ? room : free;
    }
  }
  return {holders != 0 ? first + lowest_bit(holders) : kNoLine, free != 0};
}

// A lane pins the line that its page was seen in. False when it has to be probed again.
template <class P>
BAM_HD bool try_pin_seen(const CacheState& cache, const Probe& seen, uint64_t page_id, uint64_t next_use,
                         Acquired& got) {
  Found found = pin_line<P>(cache, seen.line_id, page_id, next_use);
  got = outcome_of(found, seen.line_id);
  return found != Found::absent;
}

// A lane makes room for its page. False when the set is locked.
template <class P>
BAM_HD BAM_RARE bool try_insert(const CacheState& cache, uint64_t page_id, uint64_t next_use, Acquired& got) {
  uint64_t set_id = set_of(cache, page_id);
  if (!try_lock_set<P>(cache.sets[set_id])) return false;
  got = acquire_locked<P>(cache, set_id, page_id, next_use);
  unlock_set<P>(cache.sets[set_id]);
  return true;
}

// Of the lanes that miss, those that insert now: the lowest of each set. Where page memory moves between sets
// (frames.h) that is not enough to say which page goes, so of a warp that is `alone` only the lowest of all does.
template <class P>
BAM_HD bool inserts_now(const CacheState& cache, uint64_t page_id, bool misses, bool alone) {
  uint64_t turn = alone && cache.frames.of_line != nullptr ? 0 : set_of(cache, page_id);
  uint32_t peers = P::match(~0u, misses ? turn : ~uint64_t{P::lane()});  // sets are fewer than that
  return misses && lowest_bit(peers) == P::lane();
}

// As acquire(), for the lanes of a warp that want it, in a fixed order: who sees its page pins it, before anything is
// given up; then those that miss insert, the lanes of a set in rising order, a probe before each. So what a warp that
// is `alone` finds follows from what it looks up (bam/array/device_gather_model.py foretells it). Several warps come
// to a set in any order. A lane whose set is locked probes again instead of waiting: by then the page may be there,
// or no room for it.
template <class P>
BAM_HD Acquired look_up(const CacheState& cache, uint64_t page_id, uint64_t next_use, bool wanted, bool alone) {
  Acquired got{Outcome::bypass, 0};
  for (uint32_t left = P::ballot(wanted); left != 0; left = P::ballot(wanted)) {
    Probe seen = probe_sets<P>(cache, page_id, left);
    bool misses = wanted && seen.line_id == kNoLine;
    if (wanted && !misses) wanted = !try_pin_seen<P>(cache, seen, page_id, next_use, got);
    if (misses && !seen.has_room) misses = wanted = false;  // a bypass, without waiting for a lock that many want
    if (P::ballot(misses) == 0) continue;
    P::sync_warp();  // pins of this round are seen by whoever chooses a line to give up
    if (inserts_now<P>(cache, page_id, misses, alone)) {
      wanted = !try_insert<P>(cache, page_id, next_use, got);
      if (wanted) P::pause();
    }
    P::sync_warp();  // lines that were claimed are seen by the next probe
  }
  return got;
}

BAM_HD constexpr SourceKind source_kind(Outcome outcome) {
  switch (outcome) {
    case Outcome::hit: return SourceKind::hit;
    case Outcome::joined: return SourceKind::joined;
    case Outcome::claimed: return SourceKind::claimed;
    case Outcome::bypass: break;
  }
  return SourceKind::bypass;
}

// No command for this piece.
template <class P>
BAM_HD void give_up(const DeviceStore& store, uint64_t slot, uint64_t source, uint32_t error) {
  if (kind_of(source) == SourceKind::claimed) return lose_line<P>(store, slot, source, error);
  store.sources[slot] = make_source(SourceKind::lost, error);
}

// Tickets of one queue for up to `wanted` commands, for lane 0 of a warp; none when nothing comes back in time.
template <class P>
BAM_HD TicketRun reserve_in_time(const DeviceStore& store, Flight& flight, uint32_t queue, uint32_t wanted) {
  uint64_t begin = P::now_ns();
  for (bool said = false;; said = true) {
    TicketRun run = try_reserve<P>(store.queues[queue], wanted);
    if (run.count != 0 || P::now_ns() - begin > store.timeout_ns) return run;
    // Once: stores of all who wait, again and again, would keep the drain from the counters beside it.
    if (!said) typename P::template Atomic<uint32_t>(flight.wants_credit).store(1, P::relaxed);
    P::pause();
  }
}

// A warp writes the commands of the lanes that want one, and rings a doorbell for each run.
template <class P>
BAM_HD void submit_warp(const DeviceStore& store, Flight& flight, uint32_t queue, uint64_t page_id, uint64_t slot,
                        bool wants) {
  for (uint32_t wanting = P::ballot(wants); wanting != 0; wanting = P::ballot(wants)) {
    TicketRun run{0, 0};
    if (P::lane() == 0) {
      run = reserve_in_time<P>(store, flight, queue, count_bits(wanting));
      // before any of them can complete
      typename P::template Atomic<uint32_t>(flight.submitted).fetch_add(run.count, P::relaxed);
    }
    run = {P::shuffle(run.first, 0), P::shuffle(run.count, 0)};
    P::sync_warp();  // what lane 0 acquired with the credit, such as free command ids, holds for all lanes
    if (run.count == 0) {
      if (wants) give_up<P>(store, slot, store.sources[slot], kTimedOut);
      return;
    }
    uint32_t rank = count_bits(wanting & ((1u << P::lane()) - 1));
    if (wants && rank < run.count) {
      uint64_t ticket = run.first + rank;
      uint16_t cid = cid_of(store.queues[queue], ticket);
      store.owners[queue * store.queues[queue].depth + cid] = static_cast<uint32_t>(slot);
      write_sqe(store.queues[queue], ticket, page_command(store, cid, page_id, slot));
      wants = false;
    }
    P::sync_warp();  // the other lanes' entries are part of the release in publish()
    // Without a bound: who is waited for runs, and waits for nobody but its own predecessors.
    if (P::lane() == 0) publish<P>(store.queues[queue], run, ~uint64_t{0});
    queue = queue + 1 == store.n_queues ? 0 : queue + 1;
  }
}

// What a warp counts for its flight.
struct WarpCounts {
  uint32_t looked_up = 0, hits = 0, joins = 0, claims = 0, bypasses = 0, constant_rows = 0, left = 0;
};

template <class P>
BAM_HD void add_counts(Flight& flight, const WarpCounts& counts) {
  auto add = [](uint32_t& counter, uint32_t amount) {
    if (amount != 0) typename P::template Atomic<uint32_t>(counter).fetch_add(amount, P::relaxed);
  };
  add(flight.hits, counts.hits);
  add(flight.joins, counts.joins);
  add(flight.claims, counts.claims);
  add(flight.bypasses, counts.bypasses);
  add(flight.constant_rows, counts.constant_rows);
  add(flight.left, counts.left);
  add(flight.looked_up, counts.looked_up);
}

// A warp copies the pieces whose bytes are there, and gives the pins of hits back.
template <class P>
BAM_HD void copy_present(const DeviceStore& store, const RowBatch& batch, const Piece& piece, const Acquired& got,
                         bool hit) {
  uint64_t from = reinterpret_cast<uint64_t>(piece.constant);
  if (hit) from = reinterpret_cast<uint64_t>(line_bytes<P>(store, got.line_id) + piece.in_page);
  uint32_t length = from != 0 ? piece.length : 0;
  if (P::ballot(length != 0) == 0) return;
  P::sync_warp();  // bytes of a line that a lane acquired are copied by all
  copy_pieces<P, false>(reinterpret_cast<uint64_t>(piece.out), from, length, false, pieces_per_warp(batch),
                    segment_shift(store, batch));
  P::sync_warp();  // all lanes have read the line
  if (hit) unpin<P>(store.cache.lines[got.line_id]);
}

// The latest next use that lanes of a warp give for a page. Rows that straddle pages have some in common, and each
// says when the first of its pages is needed: so the latest is nearest, whichever lane the policy hears of last.
template <class P>
BAM_HD uint64_t latest_use(uint64_t page_id, uint64_t next_use, bool wanted) {
  uint32_t left = P::match(~0u, wanted ? page_id : ~uint64_t{P::lane()});
  uint64_t latest = next_use;
  for (; P::ballot(left != 0) != 0; left &= left - 1) {
    uint64_t other = P::shuffle(next_use, left != 0 ? lowest_bit(left) : P::lane());
    latest = other > latest ? other : latest;
  }
  return latest;
}

// A warp looks up some pieces, submits their commands, and copies what is there.
template <class P>
BAM_HD void submit_pieces(const DeviceStore& store, const RowBatch& batch, uint32_t begin, uint32_t queue, bool alone,
                          WarpCounts& counts) {
  Flight& flight = store.flights[batch.flight];
  uint32_t number = begin + P::lane();
  uint64_t slot = uint64_t{batch.flight} * store.slots_per_flight + number;
  bool exists = P::lane() < pieces_per_warp(batch) && number < batch.n_pieces(), possible = flight.stuck == 0;
  Piece piece{};
  if (exists) piece = piece_of(batch, store.page_shift, number);
  bool wanted = piece.length != 0 && piece.in_range && piece.constant == nullptr;
  uint64_t next_use = kNever;
  if (batch.next_use != nullptr && wanted) next_use = batch.next_use[batch.first_row + row_of(batch, number)];
  bool shared = batch.next_use != nullptr && batch.pages_per_row > 1 && orders_by_use(store.cache.policy);
  if (shared) next_use = latest_use<P>(piece.page_id, next_use, wanted);
  Acquired got{Outcome::bypass, 0};
  if (store.cache.n_sets != 0) got = look_up<P>(store.cache, piece.page_id, next_use, wanted && possible, alone);
  bool reads = wanted && possible && (got.outcome == Outcome::claimed || got.outcome == Outcome::bypass);
  bool hit = wanted && got.outcome == Outcome::hit;
  if (exists) {
    uint64_t source = wanted ? make_source(source_kind(got.outcome), got.line_id) : 0;
    SourceKind kept = piece.resident ? SourceKind::resident : SourceKind::constant;
    if (piece.constant != nullptr) source = make_source(kept, 0);
    store.sources[slot] = hit || piece.constant != nullptr ? source | kCopied : source;
    if (reads) store.results[slot] = kPending;
    if (piece.length != 0 && !piece.in_range) give_up<P>(store, slot, 0, kOutOfRange);
    if (wanted && !possible) give_up<P>(store, slot, 0, kTimedOut);
  }
  counts.looked_up += count_bits(P::ballot(exists));
  counts.hits += count_bits(P::ballot(hit));
  if (P::ballot(exists && !hit) != 0) {
    uint32_t place_in_row = number - row_of(batch, number) * batch.pages_per_row;
    counts.joins += count_bits(P::ballot(wanted && got.outcome == Outcome::joined));
    counts.claims += count_bits(P::ballot(reads && got.outcome == Outcome::claimed));
    counts.bypasses += count_bits(P::ballot(reads && got.outcome == Outcome::bypass));
    counts.constant_rows += count_bits(P::ballot(piece.constant != nullptr && place_in_row == 0));
    counts.left += count_bits(P::ballot(piece.length != 0 && !hit && piece.constant == nullptr));
  }
  submit_warp<P>(store, flight, queue, piece.page_id, slot, reads);
  copy_present<P>(store, batch, piece, got, hit);
}

// Kernel of at least two blocks.
template <class P>
BAM_HD void submit_rows(const DeviceStore& store, const RowBatch& batch) {
  Flight& flight = store.flights[batch.flight];
  uint32_t n_pieces = batch.n_pieces();
  if (P::block() == 0) {
    // Not before there may be completions: looking for them is a read over PCIe.
    auto nothing_to_drain = [&] {
      return load_counter<P>(flight.looked_up) != n_pieces && load_counter<P>(flight.submitted) == 0 &&
             load_counter<P>(flight.wants_credit) == 0;
    };
    while (P::any_in_block(P::thread() == 0 && nothing_to_drain())) P::pause();
    drain_until<P>(store, ~uint64_t{0}, [&] { return load_counter<P>(flight.looked_up) == n_pieces; });
    return;
  }
  uint32_t warps_per_block = P::threads() / kWarp, n_warps = (P::blocks() - 1) * warps_per_block;
  uint32_t warp = (P::block() - 1) * warps_per_block + P::thread() / kWarp, queue = warp % store.n_queues;
  WarpCounts counts;
  uint32_t share = pieces_per_warp(batch);
  for (uint64_t begin = uint64_t{warp} * share; begin < n_pieces; begin += uint64_t{n_warps} * share)
    submit_pieces<P>(store, batch, static_cast<uint32_t>(begin), queue, n_warps == 1, counts);
  if (P::lane() == 0) add_counts<P>(flight, counts);
}

}  // namespace bam
