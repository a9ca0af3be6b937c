// The shared headers under every schedule of 2 to 4 threads, planted bugs that must be found, and checks of the
// explorer itself. Usage: explore [part of a scenario's name]. EXPLORE_TRACES=1 also prints the planted bugs' traces.
#include "cache_model.h"
#include "planted_busy_bit.h"
#include "planted_cache.h"
#include "planted_queue.h"
#include "queue_model.h"
#include "self_check.h"

namespace model {
namespace {

using Scenarios = std::vector<Scenario>;

constexpr bool kBatch = true;
constexpr uint64_t kIoError = 5, kNoData = 61;
const Visit kNoteUse{1, 0, 3, Ask::note_use};

struct NamedPolicy {
  Policy policy;
  const char* name;
};
constexpr NamedPolicy kPolicies[] = {{Policy::random, "random"},
                                     {Policy::clock, "clock"},
                                     {Policy::sieve, "sieve"},
                                     {Policy::look_ahead, "look-ahead"}};

// Without the second set's lock: set 1 finds the emptied line with the frame still in it.
CacheScript frame_script() {
  const uint64_t a = page_in_set(0, 2, 0), b = page_in_set(1, 2, 0), c = page_in_set(0, 2, 1);
  CacheScript script{Policy::look_ahead_global, 2, 2, {{{b, 0, 1}}, {{c, 0, 1}}}, false,
                     {bam::make_line(a, 0, LineState::valid)}, {9}};
  script.n_frames = 1;
  return script;
}

void add_small_caches(const NamedPolicy& p, Scenarios& all) {
  auto add = [&](const char* name, uint32_t ways, std::vector<std::vector<Visit>> threads, bool batch,
                 uint64_t min_states, std::vector<size_t> must_reach) {
    all.push_back(cache_scenario<RealCache>(std::string("cache, ") + p.name + ": " + name,
                                            {p.policy, ways, 1, std::move(threads), batch}, min_states,
                                            std::move(must_reach)));
  };
  add("2 threads, 2 pages, 1 way", 1, {{{1}, {2}}, {{1}, {2}}}, !kBatch, 800,
      {kHit, kClaimed, kJoinedValid, kBypass});
  add("2 threads, 3 pages, 2 ways", 2, {{{1, 0, 3}, {2, 0, 1}, {3, 0, 2}}, {{3}, {2}, {1}}}, !kBatch, 6000,
      {kHit, kClaimed, kJoinedValid});
  add("2 batches that cross", 2, {{{1}, {2}}, {{2}, {1}}}, kBatch, 600, {kHit, kClaimed, kJoinedValid});
  add("3 threads, 1 page", 1, {{{1}}, {{1}}, {{1}}}, !kBatch, 5000, {kHit, kClaimed, kJoinedValid});
  add("3 threads, 1 page, reads fail", 1, {{{1, kIoError}}, {{1, kNoData}}, {{1}}}, !kBatch, 3500,
      {kHit, kJoinedFailed, kFailed, kJoinedValid});
  add("3 threads, 3 pages, 2 ways", 2, {{{1}}, {{2}}, {{3}}}, !kBatch, 1500, {kClaimed, kBypass});
  add("3 threads, failure, retry, eviction", 1, {{{1, kIoError}, {1}, {2}}, {{2}}, {{1}}}, !kBatch, 6500,
      {kHit, kJoinedFailed, kFailed, kBypass});
  add("3 batches that cross, 2 ways", 2, {{{1}, {2}}, {{2}, {3}}, {{3}, {1}}}, kBatch, 40'000,
      {kHit, kJoinedValid, kBypass});
}

// Larger ones, and caches that do not start empty.
void add_other_caches(const NamedPolicy& p, Scenarios& all) {
  const std::string prefix = std::string("cache, ") + p.name + ": ";
  const uint64_t a = page_in_set(0, 2, 0), b = page_in_set(1, 2, 0), c = page_in_set(0, 2, 1);
  all.push_back(cache_scenario<RealCache>(prefix + "3 threads, 2 sets of 1 way",
                                          {p.policy, 1, 2, {{{a}, {b}}, {{b}, {c}}, {{c}}}}, 20'000,
                                          {kHit, kJoinedValid, kBypass}));
  const std::vector<LineWord> full = {bam::make_line(1, 0, LineState::valid), bam::make_line(2, 0, LineState::valid)};
  all.push_back(cache_scenario<RealCache>(prefix + "hits against evictions in a full set",
                                          {p.policy, 2, 1, {{{3, 0, 1}}, {{1, 0, 5}}, {{2, 0, 5}, {4, 0, 2}}}, false,
                                           full, {2, 4}},
                                          5'000, {kHit, kClaimed, kEvicted}));
  all.push_back(cache_scenario<RealCache>(prefix + "pins run out",
                                          {p.policy, 1, 1, {{{1}}, {{1}}, {{1}}}, false,
                                           {bam::make_line(1, bam::kMaxPins - 2, LineState::valid)}},
                                          300, {kHit, kBypass}));
  if (p.policy != Policy::sieve)  // the same with sieve has ten million states
    all.push_back(cache_scenario<RealCache>(prefix + "3 threads, 2 pages each, 2 ways",
                                            {p.policy, 2, 1, {{{1}, {2}}, {{2}, {3}}, {{3}, {1}}}}, 200'000,
                                            {kHit, kJoinedValid, kBypass}));
}

// Threads that touch a line without a pin, while it changes hands and the new page cannot be read. The errno equals
// the use that was foreseen for the old page.
void add_hints(const NamedPolicy& p, Scenarios& all) {
  const std::vector<LineWord> page_1 = {bam::make_line(1, 0, LineState::valid)};
  const Visit fails{2, kIoError, 4}, joins{2, 0, 4};
  auto add = [&](const char* name, Visit first, uint64_t min_states) {
    all.push_back(cache_scenario<RealCache>(std::string("cache, ") + p.name + ": " + name,
                                            {p.policy, 1, 1, {{first}, {fails}, {joins}}, false, page_1, {kIoError}},
                                            min_states, {kJoinedFailed, kEvicted}));
  };
  add("hinted look-up of a line that changes hands", {1, 0, 3, Ask::hinted}, EXPLORED_WRITES_ARE_CHEAP ? 3500 : 4000);
  if (p.policy != Policy::look_ahead) return;
  add("a use is noted while the line changes hands", kNoteUse, 800);
  add("uses are forgotten while the line changes hands", {kIoError + 1, 0, bam::kNever, Ask::forget_uses}, 800);
}

// Page memory that moves between two sets of 2 lines, with memory for 2 pages: each miss takes some line's.
void add_frames(Scenarios& all) {
  const Policy global = Policy::look_ahead_global;
  const uint64_t a = page_in_set(0, 2, 0), b = page_in_set(1, 2, 0), c = page_in_set(0, 2, 1), d = page_in_set(1, 2, 1);
  auto add = [&](const char* name, std::vector<std::vector<Visit>> threads, std::vector<LineWord> lines,
                 uint64_t min_states, std::vector<size_t> must_reach) {
    CacheScript script{global, 2, 2, std::move(threads), false, std::move(lines), {9, 9}};
    script.n_frames = 2;
    all.push_back(cache_scenario<RealCache>(std::string("cache, frames: ") + name, std::move(script), min_states,
                                            std::move(must_reach)));
  };
  const std::vector<LineWord> both_in_set_0 = {bam::make_line(a, 0, LineState::valid),
                                               bam::make_line(c, 0, LineState::valid)};
  add("unused memory is shared out", {{{a, 0, 1}}, {{b, 0, 2}}, {{d, 0, 3}}}, {}, 1000, {kClaimed, kBypass});
  add("two sets want one set's memory", {{{b, 0, 1}}, {{d, 0, 1}}}, both_in_set_0, 100,
      {kClaimed, kEvicted, kFrameMoved});
  add("memory is taken from a page that is being hit", {{{b, 0, 1}}, {{a, 0, 1}}, {{c, 0, 1}}}, both_in_set_0, 1000,
      {kHit, kClaimed, kEvicted, kFrameMoved});
  add("two misses take each other's memory", {{{b, 0, 1}, {c, 0, 1}}, {{c, 0, 1}, {b, 0, 1}}},
      {bam::make_line(a, 0, LineState::valid)}, 1000, {kHit, kClaimed, kEvicted, kFrameMoved});
  add("memory of a failed read is used again", {{{b, kIoError, 1}, {d, 0, 1}}, {{c, 0, 1}}}, both_in_set_0,
      EXPLORED_WRITES_ARE_CHEAP ? 400 : 500,
      {kFailed, kClaimed, kFrameMoved});
}

const CacheScript kLastInsertions = {
    Policy::sieve, 2, 1, {{{3}}, {{1}}, {{2}}}, false,
    {bam::make_line(1, 0, LineState::valid), bam::make_line(2, 0, LineState::valid)},
    {bam::sieve_meta(bam::kLastInsertion, false), bam::sieve_meta(bam::kLastInsertion - 1, true)},
    static_cast<uint32_t>(bam::kLastInsertion)};

Scenarios cache_scenarios() {
  Scenarios all;
  for (const NamedPolicy& p : kPolicies) {
    add_small_caches(p, all);
    add_other_caches(p, all);
    add_hints(p, all);
  }
  add_frames(all);
  all.push_back(cache_scenario<RealCache>("cache, sieve: insertion numbers run out", kLastInsertions, 10'000,
                                          {kHit, kClaimed, kEvicted}));
  return all;
}

QueueThread submitter(std::vector<uint32_t> runs) { return {Role::submitter, std::move(runs)}; }
QueueThread draining(std::vector<uint32_t> runs) { return {Role::draining_submitter, std::move(runs)}; }
const QueueThread kDrainer{Role::drainer}, kController{Role::controller};

Scenarios queue_scenarios() {
  auto real = [](const char* name, QueueScript script, uint64_t min_states, std::vector<size_t> must_reach) {
    return queue_scenario<RealQueue>(std::string("queue: ") + name, std::move(script), min_states,
                                     std::move(must_reach));
  };
  return {
      real("depth 2, 1 submitter, 5 commands", {2, {draining({1, 1, 1, 1, 1}), kController}}, 120, {kNoCredit}),
      real("depth 2, 2 submitters, 6 commands", {2, {draining({1, 1, 1}), draining({1, 1, 1}), kController}}, 40'000,
           {kNoCredit, kDrainBusy}),
      real("depth 2, 3 submitters, 4 commands",
           {2, {submitter({1}), submitter({1}), draining({1, 1}), kController}}, 10'000, {kNoCredit}),
      real("depth 2, 2 submitters and a drainer, 6 commands",
           {2, {submitter({1, 1, 1}), submitter({1, 1, 1}), kDrainer, kController}}, 19'000, {kNoCredit}),
      real("depth 2, waits that give up",
           {.depth = 2, .threads = {draining({1, 1}), draining({1, 1}), kController}, .bounded_waits = true}, 35'000,
           {kGaveUp}),
      real("depth 4, 1 submitter, 9 commands, newest first",
           {.depth = 4, .threads = {draining({2, 2, 2, 3}), kController}, .newest_first = true, .hold = 2}, 35'000,
           {kPartialRun, kOutOfOrder, kSeveralDrained}),
      real("depth 4, 2 submitters, runs of 2 and 1", {4, {draining({2}), draining({1, 1}), kController}}, 150'000,
           {kNoCredit, kPartialRun, kLaterFirst, kWaitedForEarlier, kSeveralDrained, kDrainBusy}),
      real("depth 4, 2 submitters, one drains, newest first",
           {.depth = 4, .threads = {submitter({2, 1}), draining({2}), kController}, .newest_first = true, .hold = 2},
           25'000, {kNoCredit, kPartialRun, kLaterFirst, kWaitedForEarlier, kOutOfOrder, kSeveralDrained}),
      real("depth 4, 2 submitters, 8 commands, completed backwards when the queue is full",
           {.depth = 4, .threads = {submitter({2, 2}), draining({2, 2}), kController}, .newest_first = true,
            .hold = 3}, 20'000,
           {kNoCredit, kPartialRun, kLaterFirst, kWaitedForEarlier, kOutOfOrder, kSeveralDrained}),
      real("depth 4, 2 submitters and a drainer, newest first",
           {.depth = 4, .threads = {submitter({2}), submitter({1, 1}), kDrainer, kController}, .newest_first = true,
            .hold = 2}, 8000, {kNoCredit, kLaterFirst, kWaitedForEarlier, kOutOfOrder, kSeveralDrained}),
      real("depth 4, 2 drainers", {4, {draining({3, 2}), kDrainer, kController}}, 85'000,
           {kNoCredit, kPartialRun, kSeveralDrained, kDrainBusy}),
      real("depth 4, commands fail, drained one by one",
           {.depth = 4, .threads = {draining({3}), draining({1}), kController}, .fail_odd = true, .drain_most = 1},
           30'000, {kLaterFirst, kWaitedForEarlier, kDrainBusy}),
  };
}

Scenarios planted_scenarios() {
  const auto clock = Policy::clock;
  const QueueScript two_submitters = {2, {draining({1, 1}), draining({1, 1}), kController}};
  const QueueScript two_publishers = {4, {draining({1}), draining({1}), kController}};
  return {
      busy_bit_scenario(),
      cache_scenario<InsertWithoutSecondLook>("planted: a miss is inserted without a second look",
                                              {clock, 2, 1, {{{1}}, {{1}}}}, 1, {}, "a page is in two lines"),
      cache_scenario<LockByLoadAndStore>("planted: lock by load and store", {clock, 2, 1, {{{1}}, {{1}}}}, 1, {},
                                         "a page is in two lines"),
      cache_scenario<PublishByLoadAndStore>("planted: publish by load and store", {clock, 1, 1, {{{1}}, {{1}}}}, 1,
                                            {}, "more holders than pins"),
      cache_scenario<ReasonAfterFailure>("planted: reason noted after the failure",
                                         {clock, 1, 1, {{{1, kIoError}}, {{1}}}}, 1, {}, "another reason"),
      cache_scenario<NoteUseWithoutLock>("planted: a use noted without the lock",
                                         {Policy::look_ahead, 1, 1, {{kNoteUse}, {{2, kIoError, 4}}}, false,
                                          {bam::make_line(1, 0, LineState::valid)}, {kIoError}},
                                         1, {}, "another reason"),
      cache_scenario<LeftLocked>("planted: set left locked", {clock, 1, 1, {{{1}}, {{2}}, {{3}}}}, 1, {},
                                 "a set is left locked"),
      cache_scenario<VisitByLoadAndStore>("planted: visited bit by load and store", kLastInsertions, 1, {},
                                          "one insertion number"),
      cache_scenario<FrameTakenWithoutLock>("planted: a frame taken without the lock of its set", frame_script(), 1, {},
                                            "a page has no memory"),
      cache_scenario<RelaxedPublish>("planted: relaxed publish", {clock, 1, 1, {{{1}}, {{1}}}}, 1, {}, "data race"),
      cache_scenario<RelaxedUnpin>("planted: relaxed unpin", {clock, 1, 1, {{{1}}, {{2}}}}, 1, {}, "data race"),
      queue_scenario<LostDoorbell>("planted: lost doorbell", two_publishers, 1, {}, "the doorbell went back"),
      queue_scenario<PublishOutOfOrder>("planted: publish out of order", two_publishers, 1, {},
                                        "the doorbell went back"),
      queue_scenario<CidFromTicket>("planted: command id used twice",
                                    {.depth = 4, .threads = {draining({3, 3}), kController}, .newest_first = true,
                                     .hold = 2}, 1, {}, "given out while it is outstanding"),
      queue_scenario<CreditBeforeUse>("planted: credit before the completion was used",
                                      {4, {draining({3, 2}), draining({1}), kController}}, 1, {}, "data race"),
      queue_scenario<RoomAfterCredit>("planted: credit before room", two_submitters, 1, {}, "no room"),
      queue_scenario<DrainWithoutLock>("planted: two drainers at once", two_submitters, 1, {}, "not outstanding"),
      queue_scenario<PhaseFirst>("planted: phase written first", two_submitters, 1, {}, "torn"),
      queue_scenario<RelaxedDoorbell>("planted: relaxed doorbell", two_submitters, 1, {}, "data race"),
      queue_scenario<RelaxedCompletion>("planted: relaxed completion", two_submitters, 1, {}, "data race"),
  };
}

Scenarios all_scenarios() {
  Scenarios all;
  for (Scenarios part : {self_check_scenarios(), planted_scenarios(), queue_scenarios(), cache_scenarios()})
    for (Scenario& scenario : part) all.push_back(std::move(scenario));
  return all;
}

}  // namespace
}  // namespace model

int main(int argc, char** argv) {
  return explorer::Runner().run(model::all_scenarios(), argc > 1 ? argv[1] : "");
}
