// Runs a few model threads under every schedule: a depth-first search over the states of a small program.
//
// A step is one atomic access of one thread, up to its next one. A state is everything the future can depend on:
// the world's bytes, each thread's local state (the live bytes of its stack, registers included, fiber.h) and the
// happens-before clocks. The search steps every thread from every state it meets, once: a state seen before is not
// followed again. That is sound because threads are deterministic, so equal states have equal futures, whatever
// the schedules that led to them; checkpoints (copies of world and stacks) are how it goes back to try the next one.
// States are compared by a 64-bit hash: with n states, two differ but collide with probability n * n / 2^65, which
// is 3e-8 for a million. Garbage in a stack can only make equal states look different: more work, nothing missed.
//
// Spin loops need no bound: a turn that changes nothing leads back to a known state. Weak compare-exchanges may
// fail for no reason as often as they like, for the same reason. The price: a thread that counts its turns makes
// new states without end, so models call waits with a small limit, or loop over the try_ functions themselves.
//
// Violations: expect() in a thread or a check; a data race; a state from which no schedule ends (a deadlock, a
// livelock that nothing leaves, a lock left taken); too many states. The one with the shortest schedule is reported.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "scheduled.h"
#include "state_graph.h"

namespace explorer {

// A model. `world` holds everything the threads share: plain bytes, no pointers to the heap.
struct Program {
  void* world;
  size_t world_bytes;
  uint32_t n_threads;
  void (*run_thread)(void* world, uint32_t thread);
  void (*check_state)(void* world);        // after every step
  void (*check_end)(const void* world);    // when every thread has finished
};

struct Limits {
  uint64_t max_states = 20'000'000;
  bool spurious_failures = true;
};

struct Findings {
  std::string violation;  // empty: none
  std::vector<Event> trace;
  uint64_t states = 0;
  uint64_t steps = 0;
  uint64_t ends = 0;  // distinct final states
  uint32_t longest = 0;
};

class Search {
 public:
  Search(const Program& program, const Limits& limits) : program_(program), limits_(limits) {
    initial_world_.assign(world(), world() + program.world_bytes);
  }

  Findings run() {
    runtime().forget_words();
    enter_root();
    explore();
    if (violations_.empty())
      for (const Edge& edge : graph_.edges_to_stuck_states(states_.size())) violations_.push_back({edge, kStuck});
    findings_.states = states_.size();
    if (!violations_.empty()) report_nearest();
    std::memcpy(world(), initial_world_.data(), program_.world_bytes);
    return findings_;
  }

 private:
  struct Violation {
    Edge edge;  // its last step
    std::string message;
  };
  struct Level {
    uint32_t state;
    uint32_t next = 0;
    std::vector<Choice> choices;
    std::vector<uint8_t> checkpoint;
  };

  static constexpr uint32_t kTurnsShown = 6;
  // After a violation the search goes on for a while: depth first, the first one found has a long schedule.
  static constexpr uint64_t kStatesAfterViolation = 100'000;
  static constexpr const char* kStuck = "stuck: no schedule from here ever ends";

  static Runtime& runtime() { return Runtime::instance(); }
  static Fiber* fibers() {
    static Fiber all[kMaxThreads];
    return all;
  }
  uint8_t* world() const { return static_cast<uint8_t*>(program_.world); }

  static void enter_thread(void* search) {
    const Program& program = static_cast<Search*>(search)->program_;
    program.run_thread(program.world, runtime().thread);
  }

  // ---- one step

  void resume(Choice choice) {
    Runtime& shared = runtime();
    shared.thread = choice.thread;
    shared.spurious = choice.spurious;
    shared.on_fiber = true;
    fibers()[choice.thread].resume();
    shared.on_fiber = false;
    if (shared.violation.empty()) program_.check_state(program_.world);
  }

  bool all_finished() const {
    for (uint32_t t = 0; t < program_.n_threads; t++)
      if (!fibers()[t].position.finished) return false;
    return true;
  }

  // Every thread stands before its first access.
  void start() {
    std::memcpy(world(), initial_world_.data(), program_.world_bytes);
    runtime().reset();
    for (uint32_t t = 0; t < program_.n_threads; t++) fibers()[t].start(&Search::enter_thread, this);
    for (uint32_t t = 0; t < program_.n_threads && runtime().violation.empty(); t++)
      resume({static_cast<uint8_t>(t), false});
  }

  std::vector<Choice> choices() const {
    std::vector<Choice> found;
    for (uint8_t t = 0; t < program_.n_threads; t++) {
      if (fibers()[t].position.finished) continue;
      found.push_back({t, false});
      if (limits_.spurious_failures && runtime().may_fail_spuriously(t)) found.push_back({t, true});
    }
    return found;
  }

  // ---- states and checkpoints

  uint64_t state_hash() const {
    uint64_t state = hash(world(), program_.world_bytes, 1);
    bool running[kMaxThreads] = {};
    for (uint32_t t = 0; t < program_.n_threads; t++) {
      state = hash(fibers()[t].state_begin(), fibers()[t].state_bytes(), state);
      running[t] = !fibers()[t].position.finished;
    }
    runtime().clocks.fingerprint(runtime().n_words(), running, [&](uint64_t part) { state = mixed(state, part); });
    return state;
  }

  // Everything that a step can change.
  template <class Copy>
  void for_each_part(uint32_t n_words, Copy&& copy) const {
    copy(world(), program_.world_bytes);
    copy(&runtime().clocks, HappensBefore::bytes_used(n_words));
    copy(runtime().weak, sizeof runtime().weak);
    for (uint32_t t = 0; t < program_.n_threads; t++) {
      copy(&fibers()[t].position, sizeof(Fiber::Position));
      copy(fibers()[t].kept_begin(), fibers()[t].kept_bytes());
    }
  }
  void save(std::vector<uint8_t>& checkpoint) const {
    checkpoint.clear();
    const uint32_t n_words = runtime().n_words();
    auto append = [&](const void* part, size_t bytes) {
      const uint8_t* at = static_cast<const uint8_t*>(part);
      checkpoint.insert(checkpoint.end(), at, at + bytes);
    };
    append(&n_words, sizeof n_words);
    for_each_part(n_words, append);
  }
  void restore(const std::vector<uint8_t>& checkpoint) const {
    const uint8_t* from = checkpoint.data();
    uint32_t n_words = 0;
    std::memcpy(&n_words, from, sizeof n_words);
    from += sizeof n_words;
    runtime().clocks.forget_words(n_words, runtime().n_words());
    for_each_part(n_words, [&](void* part, size_t bytes) {
      std::memcpy(part, from, bytes);
      from += bytes;
    });
  }

  // ---- the search

  void enter_root() {
    start();
    if (!note_violation({kNowhere, kNowhere, {}})) enter_state(kNowhere, {});
  }

  // Takes down what the last step ran into, if anything.
  bool note_violation(const Edge& edge) {
    if (runtime().violation.empty()) return false;
    if (violations_.empty()) last_state_ = states_.size() + kStatesAfterViolation;
    violations_.push_back({edge, runtime().violation});
    runtime().violation.clear();
    return true;
  }

  // The state the program is in now: followed if it is new.
  void enter_state(uint32_t from, Choice choice) {
    auto [state, is_new] = states_.insert(state_hash());
    if (from != kNowhere) graph_.add({from, state, choice});
    if (!is_new) return;
    if (all_finished()) {
      findings_.ends++;
      graph_.add_end(state);
      program_.check_end(program_.world);
      return;
    }
    if (depth_ == levels_.size()) levels_.emplace_back();
    Level& level = levels_[depth_++];
    level.state = state;
    level.next = 0;
    level.choices = choices();
    if (level.choices.size() > 1) save(level.checkpoint);
    if (depth_ > findings_.longest) findings_.longest = static_cast<uint32_t>(depth_);
  }

  void explore() {
    last_state_ = limits_.max_states;
    while (depth_ != 0) {
      Level& level = levels_[depth_ - 1];
      if (level.next == level.choices.size()) {
        depth_--;
        continue;
      }
      if (states_.size() > last_state_) {
        if (violations_.empty()) violations_.push_back({graph_.last(), "more states than the limit"});
        return;
      }
      if (level.next != 0) restore(level.checkpoint);
      const uint32_t from = level.state;
      const Choice choice = level.choices[level.next++];
      findings_.steps++;
      resume(choice);
      if (runtime().violation.empty()) enter_state(from, choice);
      note_violation({from, kNowhere, choice});
    }
  }

  // ---- the trace

  void report_nearest() {
    std::vector<Edge> parents(states_.size(), {kNowhere, kNowhere, {}});
    std::vector<uint32_t> distances(states_.size(), 0);
    for (const Edge& edge : graph_.shortest_paths(states_.size())) {
      parents[edge.to] = edge;
      distances[edge.to] = distances[edge.from] + 1;
    }
    auto distance = [&](const Violation& v) { return v.edge.from == kNowhere ? 0 : 1 + distances[v.edge.from]; };
    const Violation& nearest =
        *std::min_element(violations_.begin(), violations_.end(),
                          [&](const Violation& a, const Violation& b) { return distance(a) < distance(b); });
    findings_.violation = nearest.message;
    std::vector<Choice> schedule;
    for (Edge edge = nearest.edge; edge.from != kNowhere; edge = parents[edge.from]) schedule.push_back(edge.choice);
    std::reverse(schedule.begin(), schedule.end());
    replay(schedule, nearest.message == kStuck);
  }

  // Also shows, when the threads are stuck, what each of them then does for ever.
  void replay(const std::vector<Choice>& schedule, bool stuck) {
    runtime().trace = &findings_.trace;
    start();
    for (Choice choice : schedule)
      if (runtime().violation.empty()) resume(choice);
    if (stuck) {
      runtime().note("stuck: the threads that have not finished go on like this");
      for (uint32_t turn = 0; turn < kTurnsShown; turn++)
        for (Choice choice : choices())
          if (!choice.spurious && runtime().violation.empty()) resume(choice);
    }
    runtime().trace = nullptr;
    runtime().violation.clear();
  }

  const Program program_;
  const Limits limits_;
  std::vector<uint8_t> initial_world_;
  StateTable states_;
  StateGraph graph_;
  std::deque<Level> levels_;
  size_t depth_ = 0;
  std::vector<Violation> violations_;
  uint64_t last_state_ = 0;
  Findings findings_;
};

}  // namespace explorer
