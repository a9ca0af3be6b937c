// From a request to the first hop: empty table, keys, seeds; and what every hop begins with.
#pragma once

#include "slots.h"
#include "team.h"

namespace gids {

constexpr int64_t kNothing = 0x7FFFFFFFFFFFFFFFll;  // of the report's "first bad ..." words

// Work of thread `thread` of `threads`; so in all steps with these arguments.
BAM_HD inline void prepare(const Plan& plan, int64_t thread, int64_t threads) {
  for (int64_t slot = thread; slot < 1ll << plan.slot_bits; slot += threads) plan.slots[slot] = kEmpty;
  const int64_t* request = plan.request;
  for (int64_t i = thread; i < plan.num_hops * plan.num_relations; i += threads)
    plan.keys[i] = stream_key(static_cast<uint64_t>(request[kSeed]), static_cast<uint32_t>(request[kEpoch]),
                              static_cast<uint32_t>(request[kBatch]), static_cast<uint32_t>(i / plan.num_relations),
                              static_cast<uint32_t>(i % plan.num_relations));
  for (int64_t t = thread; t < plan.num_types; t += threads) plan.node_counts[t] = request[kSeedCounts + t];
  for (int64_t word = thread; word < kReportWords; word += threads)
    plan.report[word] = word >= kBadSeed && word <= kBadEdge ? kNothing : 0;
  if (thread == 0) plan.item_firsts[0] = plan.edge_firsts[0] = 0;
}

struct SeedPlace {
  int64_t type, local_id, node;
};

BAM_HD inline SeedPlace seed_at(const Plan& plan, int64_t position) {
  int64_t type = 0, local_id = position;
  for (; local_id >= plan.node_counts[type]; type++) local_id -= plan.node_counts[type];
  return {type, local_id, plan.request[kSeedCounts + plan.num_types + position]};
}

BAM_HD inline int64_t num_seeds(const Plan& plan) {
  int64_t sum = 0;
  for (int64_t t = 0; t < plan.num_types; t++) sum += plan.node_counts[t];
  return sum;
}

// A local id takes the place of an edge's position: the smallest of a node given twice wins.
template <class P>
BAM_HD void insert_seeds(const Plan& plan, int64_t thread, int64_t threads) {
  int64_t n = num_seeds(plan);
  for (int64_t i = thread; i < n; i += threads) {
    SeedPlace seed = seed_at(plan, i);
    uint32_t slot = kNoSlot;
    if (seed.node < 0 || seed.node >= plan.num_nodes[seed.type]) {
      lower<P>(plan.report[kBadSeed], i);
    } else {
      slot = insert<P>(plan, plan.first_keys[seed.type] + seed.node, seed.local_id);
      if (slot == kNoSlot) table_is_full<P>(plan);
      plan.nodes[plan.node_bases[seed.type] + seed.local_id] = seed.node;
    }
    plan.edge_slots[i] = slot;
  }
}

// Where the items of a hop stand, and their tiles. One team.
template <class Team>
BAM_HD void plan_items(const Plan& plan, int64_t hop, Team& team) {
  int64_t flat = hop * plan.num_relations, before = plan.item_firsts[flat];
  auto items = [&](int64_t r) {
    int64_t type = plan.relations[r].dst_type;
    return expanded_to(plan, hop, type) - expanded_from(plan, hop, type);
  };
  team.sync();
  int64_t entries = prefix_sums(
      team, plan.num_relations, [&](int64_t r) { return items(r) + 1; },
      [&](int64_t r, int64_t sum) { plan.item_firsts[flat + r] = before + sum; });
  int64_t tiles = prefix_sums(
      team, plan.num_relations, [&](int64_t r) { return (items(r) + kTile - 1) / kTile; },
      [&](int64_t r, int64_t sum) { plan.item_tiles[r] = sum; });
  if (team.rank() != 0) return;
  plan.item_firsts[flat + plan.num_relations] = before + entries;
  plan.item_tiles[plan.num_relations] = tiles;
  if (before + entries > plan.item_capacity) stop(plan, kMoreItems, hop, before + entries, 0);
}

// Check the seeds and plan hop 0. One team.
template <class P, class Team>
BAM_HD void start(const Plan& plan, Team& team) {
  int64_t n = num_seeds(plan);
  for (int64_t i = team.rank(); i < n; i += team.size()) {
    uint32_t slot = plan.edge_slots[i];
    if (slot != kNoSlot &&
        entry_value(plan, plan.slots[slot]) != static_cast<uint64_t>(seed_at(plan, i).local_id))
      lower<P>(plan.report[kBadSeed], i);
  }
  team.sync();
  int64_t bad = plan.report[kBadSeed];
  if (bad != kNothing) {
    if (team.rank() != 0) return;
    SeedPlace seed = seed_at(plan, bad);
    bool known = seed.node >= 0 && seed.node < plan.num_nodes[seed.type];
    stop(plan, known ? kDuplicateSeed : kSeedOutOfRange, seed.type, seed.node, seed.local_id);
  } else if (static_cast<uint64_t>(n) > new_bit(plan)) {
    if (team.rank() == 0) stop(plan, kTooManyNodes, 0, n, 0);
  } else if (plan.report[kTableFull]) {
    if (team.rank() == 0) stop(plan, kMoreSlots, 0, n, 0);
  } else {
    plan_items(plan, 0, team);
  }
}

}  // namespace gids
