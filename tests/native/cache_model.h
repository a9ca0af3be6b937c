// The page cache as a model: threads that acquire, fill, use and release pages by a script.
#pragma once

#include <array>
#include <memory>

#include "bam/page_cache.h"
#include "scenario.h"

namespace model {

using bam::Acquired;
using bam::CacheState;
using bam::LineState;
using bam::LineWord;
using bam::Outcome;
using bam::Policy;
using explorer::expect;
using explorer::Plain;
using explorer::reached;
using explorer::ScheduledPlatform;

constexpr uint32_t kMaxLines = 4;
constexpr uint32_t kMaxVisits = 4;

enum class Ask : uint32_t {
  acquire,
  hinted,       // peek(), and the line it names is tried first, as a gather does
  note_use,     // tells of the page's next use and does not ask for it
  forget_uses,  // of every page; `page` is the horizon
};

// One page a thread asks for. Whoever claims it fails with `reason` unless that is 0.
struct Visit {
  uint64_t page;
  uint64_t reason = 0;
  uint64_t next_use = 0;
  Ask ask = Ask::acquire;
};

struct CacheScript {
  Policy policy;
  uint32_t ways;
  uint32_t n_sets;
  std::vector<std::vector<Visit>> threads;
  bool batch = false;  // hold all pages of a thread at once, as a mini-batch does; else one after the other
  std::vector<LineWord> lines = {};  // at the start
  std::vector<uint64_t> metas = {};
  uint32_t hand = 0;
  uint32_t n_frames = 0;  // 0: each line has its own
};

enum CacheEvent : size_t { kHit, kJoinedValid, kJoinedFailed, kClaimed, kFailed, kBypass, kEvicted, kFrameMoved };
inline const std::vector<const char*> kCacheEvents = {"hit",    "joined, valid", "joined, failed", "claimed",
                                                    "failed", "bypass",        "evicted",       "frame moved"};

// The product's functions. A planted bug replaces some of them.
struct RealCache {
  static Acquired acquire(const CacheState& cache, uint64_t page, uint64_t next_use) {
    return bam::acquire<ScheduledPlatform>(cache, page, next_use);
  }
  static void publish(LineWord& line) { bam::publish<ScheduledPlatform>(line); }
  static void unpin(LineWord& line) { bam::unpin<ScheduledPlatform>(line); }
  static void note_use(const CacheState& cache, uint64_t page, uint64_t next_use) {
    bam::note_use<ScheduledPlatform>(cache, page, next_use);
  }
  static void fail_with(const CacheState& cache, uint64_t line_id, uint64_t reason) {
    bam::fail_with<ScheduledPlatform>(cache, line_id, reason);
  }
};

// The `nth` page, from 0, whose set is `set_id` among `n_sets`.
inline uint64_t page_in_set(uint64_t set_id, uint64_t n_sets, uint32_t nth) {
  CacheState cache{};
  cache.n_sets = n_sets;
  for (uint64_t page = 0;; page++)
    if (bam::set_of(cache, page) == set_id && nth-- == 0) return page;
}

constexpr uint64_t bytes_of(uint64_t page) { return 1000 + page; }
constexpr uint64_t kHalfRead = 1;

// What a thread does to each page of a batch, in this order.
enum Stage : uint32_t { kAcquire, kFill, kUse, kRelease };

template <class Cache>
struct CacheWorld {
  alignas(64) LineWord lines[kMaxLines];
  uint64_t metas[kMaxLines];
  bam::SetState sets[2];
  uint32_t frames[kMaxLines];
  uint64_t frame_counters[bam::kFrameCounters];
  Plain<uint64_t> bytes[kMaxLines];  // stands for the page in the line, or in its frame
  Plain<uint64_t> notes[kMaxLines];  // what a claimer notes about a failure before it says so
  uint8_t holders[kMaxLines];        // threads between the return of acquire() and unpin()
  const CacheScript* script;
  // What a thread keeps from one step to the next. It lies here and not on stacks, so that equal states look equal.
  struct Local {
    Acquired acquired[kMaxVisits];
    uint32_t first, place;  // of the batch, in the batch
    Stage stage;
  };
  Local local[explorer::kMaxThreads];

  CacheState cache() const {
    auto* self = const_cast<CacheWorld*>(this);
    const bam::Frames memory{script->n_frames == 0 ? nullptr : self->frames, self->frame_counters, script->n_frames};
    return {self->lines, self->metas, self->sets, script->n_sets, script->ways, script->policy, 1, memory};
  }

  Plain<uint64_t>& bytes_in(uint64_t line_id) { return bytes[script->n_frames == 0 ? line_id : frames[line_id] - 1]; }

  void run(uint32_t thread) {
    while (step(thread)) explorer::Fiber::scrub();
  }

  // Does one thing to one page of the thread's present batch. False: the thread has nothing left to do.
  // Every own read is finished before anybody else's is awaited; else two batches could wait for each other.
  __attribute__((noinline)) bool step(uint32_t thread) {
    const std::vector<Visit>& visits = script->threads[thread];
    const uint32_t batch = script->batch ? static_cast<uint32_t>(visits.size()) : 1;
    Local& me = local[thread];
    if (me.first == visits.size()) return false;
    const Visit& visit = visits[me.first + me.place];
    Acquired& acquired = me.acquired[me.place];
    switch (me.stage) {
      case kAcquire: acquired = acquire(visit); break;
      case kFill:
        if (acquired.outcome == Outcome::claimed) fill(visit, acquired.line_id);
        break;
      case kUse:
        if (acquired.outcome != Outcome::bypass) use(visit, acquired);
        break;
      case kRelease:
        if (acquired.outcome != Outcome::bypass) release(acquired.line_id);
        acquired = {};
        break;
    }
    if (++me.place < batch) return true;
    me.place = 0;
    if (me.stage == kRelease) me.first += batch;
    me.stage = me.stage == kRelease ? kAcquire : static_cast<Stage>(me.stage + 1);
    return true;
  }

  Acquired acquire(const Visit& visit) {
    explorer::note("asks for page ", visit.page);
    Acquired acquired = ask(visit);
    if (acquired.outcome == Outcome::bypass) {
      reached(kBypass);
      return acquired;
    }
    holders[acquired.line_id]++;
    expect_held(visit, acquired.line_id);
    if (acquired.outcome == Outcome::hit) reached(kHit);
    if (acquired.outcome == Outcome::claimed) reached(kClaimed);
    return acquired;
  }

  Acquired ask(const Visit& visit) {
    switch (visit.ask) {
      case Ask::acquire: return Cache::acquire(cache(), visit.page, visit.next_use);
      case Ask::hinted: return acquire_hinted(visit);
      case Ask::note_use: Cache::note_use(cache(), visit.page, visit.next_use); break;
      case Ask::forget_uses: bam::forget_uses<ScheduledPlatform>(cache(), visit.page, visit.next_use); break;
    }
    return {Outcome::bypass, 0};
  }

  Acquired acquire_hinted(const Visit& visit) {
    uint64_t line_id = bam::peek<ScheduledPlatform>(cache(), visit.page);
    if (line_id == bam::kNoLine) return Cache::acquire(cache(), visit.page, visit.next_use);
    bam::PinResult pinned = bam::try_pin<ScheduledPlatform>(lines[line_id], visit.page);
    if (pinned == bam::PinResult::reading) return {Outcome::joined, line_id};
    if (pinned != bam::PinResult::valid) return Cache::acquire(cache(), visit.page, visit.next_use);
    bam::on_hit<ScheduledPlatform>(script->policy, metas[line_id], visit.next_use);
    return {Outcome::hit, line_id};
  }

  void fill(const Visit& visit, uint64_t line_id) {
    bytes_in(line_id).store(visit.reason == 0 ? bytes_of(visit.page) : kHalfRead);
    if (visit.reason == 0) {
      Cache::publish(lines[line_id]);
    } else {
      notes[line_id].store(visit.reason);
      Cache::fail_with(cache(), line_id, visit.reason);
      reached(kFailed);
    }
  }

  void use(const Visit& visit, const Acquired& acquired) {
    LineState state = acquired.outcome == Outcome::hit ? look_later(acquired.line_id) : await(acquired.line_id);
    expect_held(visit, acquired.line_id);
    bool joined = acquired.outcome == Outcome::joined;
    if (state == LineState::valid) {
      expect(bytes_in(acquired.line_id).load() == bytes_of(visit.page), "a holder reads the bytes of another page");
      if (joined) reached(kJoinedValid);
      return;
    }
    expect(acquired.outcome != Outcome::hit, "a hit on a line that is not valid");
    uint64_t reason = bam::load_meta<ScheduledPlatform>(metas[acquired.line_id]);
    expect(may_fail_with(visit.page, reason), "a holder of a failed line finds another reason");
    notes[acquired.line_id].load();
    if (joined) reached(kJoinedFailed);
  }

  LineState await(uint64_t line_id) {
    LineState state;
    while ((state = bam::await_once<ScheduledPlatform>(lines[line_id])) == LineState::reading)
      ScheduledPlatform::pause();
    return state;
  }

  // A hit needs no look at the line's word, so this one orders nothing; it lets others run between pin and use.
  LineState look_later(uint64_t line_id) {
    return bam::state_of(ScheduledPlatform::Atomic<LineWord>(lines[line_id]).load(ScheduledPlatform::relaxed));
  }

  void release(uint64_t line_id) {
    holders[line_id]--;
    Cache::unpin(lines[line_id]);
  }

  void expect_held(const Visit& visit, uint64_t line_id) const {
    expect(bam::page_of(lines[line_id]) == visit.page && bam::pins_of(lines[line_id]) != 0,
           "a line was taken from its holder");
  }

  bool may_fail_with(uint64_t page, uint64_t reason) const {
    for (const auto& visits : script->threads)
      for (const Visit& visit : visits)
        if (visit.page == page && visit.reason == reason && reason != 0) return true;
    return false;
  }

  void check_state() const {
    for (uint32_t a = 0; a < n_lines(); a++) {
      expect(holders[a] <= bam::pins_of(lines[a]), "a line has more holders than pins");
      if (bam::state_of(lines[a]) == LineState::reading)
        expect(bam::pins_of(lines[a]) != 0, "a line is being read and nobody holds it");
      for (uint32_t b = 0; b < a; b++)
        if (is_live(a) && is_live(b))
          expect(bam::page_of(lines[a]) != bam::page_of(lines[b]), "a page is in two lines");
    }
    if (script->n_frames != 0) check_frames();
  }

  void check_frames() const {
    for (uint32_t a = 0; a < n_lines(); a++) {
      expect(!is_live(a) || (frames[a] != 0 && frames[a] <= script->n_frames), "a page has no memory");
      for (uint32_t b = 0; b < a; b++)
        expect(!is_live(a) || !is_live(b) || frames[a] != frames[b], "two pages have the same memory");
    }
  }

  void check_end() const {
    for (uint32_t i = 0; i < n_lines(); i++) {
      uint64_t pins = i < script->lines.size() ? bam::pins_of(script->lines[i]) : 0;
      expect(bam::pins_of(lines[i]) == pins, "pins are left at the end");
      expect(bam::state_of(lines[i]) != LineState::reading, "a line is left in reading");
      if (i < script->lines.size() && bam::page_of(lines[i]) != bam::page_of(script->lines[i])) reached(kEvicted);
    }
    for (const bam::SetState& set : sets) expect(set.lock == 0, "a set is left locked");
    if (script->policy == Policy::sieve) check_insertions();
    for (uint32_t i = 0; i < n_lines() && script->n_frames != 0; i++)
      if (i < script->lines.size() && frames[i] != i + 1) reached(kFrameMoved);
  }

  void check_insertions() const {
    for (uint32_t a = 0; a < n_lines(); a++)
      for (uint32_t b = a - a % script->ways; b < a; b++)
        if (is_live(a) && is_live(b)) expect(metas[a] >> 1 != metas[b] >> 1, "two lines have one insertion number");
  }

  bool is_live(uint32_t i) const {
    return bam::state_of(lines[i]) == LineState::reading || bam::state_of(lines[i]) == LineState::valid;
  }
  uint32_t n_lines() const { return script->ways * script->n_sets; }
};

inline std::string describe_line(uint64_t word) {
  static const char* const states[] = {"empty", "reading", "valid", "failed"};
  if (word == 0) return "empty";
  return "{page " + std::to_string(bam::page_of(word)) + ", pins " + std::to_string(bam::pins_of(word)) + ", " +
         states[word & 3] + "}";
}

template <class Cache>
CacheWorld<Cache>& cache_world() {
  static CacheWorld<Cache> world;
  return world;
}

template <class Cache>
explorer::Findings explore_cache(const CacheScript& script, const explorer::Limits& limits) {
  CacheWorld<Cache>& world = cache_world<Cache>();
  world = {};
  world.script = &script;
  world.sets[0].hand = script.hand;
  for (size_t i = 0; i < script.lines.size(); i++) {
    world.lines[i] = script.lines[i];
    world.bytes[i].preset(bytes_of(bam::page_of(script.lines[i])));
    if (i < script.n_frames) {
      world.frames[i] = static_cast<uint32_t>(i + 1);
      world.frame_counters[bam::kFramesTaken]++;
    }
  }
  for (size_t i = 0; i < script.metas.size(); i++) world.metas[i] = script.metas[i];
  explorer::Program program{
      &world, sizeof world, static_cast<uint32_t>(script.threads.size()),
      [](void* at, uint32_t thread) { static_cast<CacheWorld<Cache>*>(at)->run(thread); },
      [](void* at) { static_cast<const CacheWorld<Cache>*>(at)->check_state(); },
      [](const void* at) { static_cast<const CacheWorld<Cache>*>(at)->check_end(); }};
  return explorer::Search(program, limits).run();
}

template <class Cache>
explorer::Names cache_names() {
  const CacheWorld<Cache>& world = cache_world<Cache>();
  explorer::Names names;
  names.add("line", world.lines, kMaxLines, describe_line);
  names.add("meta", world.metas, kMaxLines);
  names.add("set", world.sets, 2);
  names.add("frame", world.frames, kMaxLines);
  names.add("bytes", world.bytes, kMaxLines);
  names.add("note", world.notes, kMaxLines);
  return names;
}

// The script lives as long as the scenario.
template <class Cache>
explorer::Scenario cache_scenario(std::string name, CacheScript script, uint64_t min_states,
                                  std::vector<size_t> must_reach, std::string violation = "",
                                  explorer::Limits limits = {}) {
  auto kept = std::make_shared<CacheScript>(std::move(script));
  return {std::move(name), [kept, limits] { return explore_cache<Cache>(*kept, limits); }, cache_names<Cache>,
          std::move(violation), min_states, std::move(must_reach), kCacheEvents};
}

}  // namespace model
