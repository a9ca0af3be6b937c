// States by number, and the steps between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

namespace explorer {

// The product of two words, folded: each input bit reaches all of the result.
inline uint64_t mixed(uint64_t state, uint64_t word) {
  unsigned __int128 product = static_cast<unsigned __int128>(state ^ 0x9e3779b97f4a7c15ull) *
                              (word ^ 0xd6e8feb86659fd93ull);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ (state << 32 | state >> 32);
}

inline uint64_t hash(const void* data, size_t bytes, uint64_t seed) {
  const uint8_t* at = static_cast<const uint8_t*>(data);
  uint64_t state = seed ^ bytes, word = 0;
  for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
    std::memcpy(&word, at, sizeof word);
    state = mixed(state, word);
  }
  word = 0;
  std::memcpy(&word, at, bytes);
  return bytes == 0 ? state : mixed(state, word);
}

// Numbers states by their hashes: an open-addressing table, a third of the memory of std::unordered_map.
class StateTable {
 public:
  static constexpr uint32_t kFree = ~uint32_t{0};

  // The state's number, and whether it is new.
  std::pair<uint32_t, bool> insert(uint64_t hash) {
    if (2 * (size_ + 1) > places_.size()) grow();
    Place* place = find(hash);
    if (place->number != kFree) return {place->number, false};
    *place = {hash, size_};
    return {size_++, true};
  }
  uint32_t size() const { return size_; }

 private:
  struct Place {
    uint64_t hash;
    uint32_t number;
  };

  Place* find(uint64_t hash) {
    size_t at = hash & (places_.size() - 1);
    while (places_[at].number != kFree && places_[at].hash != hash) at = (at + 1) & (places_.size() - 1);
    return &places_[at];
  }
  void grow() {
    std::vector<Place> old(std::max<size_t>(1024, 2 * places_.size()), {0, kFree});
    old.swap(places_);
    for (const Place& place : old)
      if (place.number != kFree) *find(place.hash) = place;
  }

  std::vector<Place> places_;
  uint32_t size_ = 0;
};

// One way to go on from a state: a thread, and whether its weak compare-exchange fails for no reason.
struct Choice {
  uint8_t thread;
  bool spurious;
};

struct Edge {
  uint32_t from, to;
  Choice choice;
};

constexpr uint32_t kRoot = 0;  // the state every schedule starts from
constexpr uint32_t kNowhere = ~uint32_t{0};

class StateGraph {
 public:
  void add(const Edge& edge) { edges_.push_back(edge); }
  void add_end(uint32_t state) { ends_.push_back(state); }
  const Edge& last() const { return edges_.back(); }

  // Steps into states from which no end can be reached. The root counts as entered from nowhere.
  std::vector<Edge> edges_to_stuck_states(uint32_t n_states) const {
    const Index into = index(n_states, [](const Edge& edge) { return edge.to; });
    std::vector<bool> ends(n_states, false);
    std::vector<uint32_t> todo = ends_;
    for (uint32_t state : todo) ends[state] = true;
    while (!todo.empty()) {
      uint32_t state = todo.back();
      todo.pop_back();
      for (uint32_t i = into.first[state]; i < into.first[state + 1]; i++) {
        uint32_t from = edges_[into.order[i]].from;
        if (!ends[from]) todo.push_back(from);
        ends[from] = true;
      }
    }
    std::vector<Edge> found;
    if (!ends[kRoot]) found.push_back({kNowhere, kRoot, {}});
    for (const Edge& edge : edges_)
      if (!ends[edge.to]) found.push_back(edge);
    return found;
  }

  // Edges that lead from the root to each known state by as few steps as are known, nearest first.
  std::vector<Edge> shortest_paths(uint32_t n_states) const {
    const Index out_of = index(n_states, [](const Edge& edge) { return edge.from; });
    std::vector<bool> known(n_states, false);
    std::vector<Edge> found;
    std::deque<uint32_t> todo;
    if (n_states != 0) {
      known[kRoot] = true;
      todo.push_back(kRoot);
    }
    while (!todo.empty()) {
      uint32_t state = todo.front();
      todo.pop_front();
      for (uint32_t i = out_of.first[state]; i < out_of.first[state + 1]; i++) {
        const Edge& edge = edges_[out_of.order[i]];
        if (known[edge.to]) continue;
        known[edge.to] = true;
        found.push_back(edge);
        todo.push_back(edge.to);
      }
    }
    return found;
  }

 private:
  // Edges sorted by one of their states: those of state s are order[first[s]] ... order[first[s + 1] - 1].
  struct Index {
    std::vector<uint32_t> first, order;
  };
  template <class StateOf>
  Index index(uint32_t n_states, StateOf&& state_of) const {
    Index index{std::vector<uint32_t>(n_states + 1, 0), std::vector<uint32_t>(edges_.size())};
    for (const Edge& edge : edges_) index.first[state_of(edge) + 1]++;
    for (uint32_t s = 0; s < n_states; s++) index.first[s + 1] += index.first[s];
    std::vector<uint32_t> next = index.first;
    for (uint32_t i = 0; i < edges_.size(); i++) index.order[next[state_of(edges_[i])]++] = i;
    return index;
  }

  std::vector<Edge> edges_;
  std::vector<uint32_t> ends_;
};

}  // namespace explorer
