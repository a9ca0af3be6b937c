// One hop: count, plan_edges, place, resolve, flag, plan_nodes, number. Each is one launch for all relations.
//
// `plan_edges` and `plan_nodes` are the work of one team; in the others a team takes tile `block`,
// `block + blocks` ... . Edges of a hop stand relation by relation, so "first to reach a node" means the
// smallest position, as gids/sampling/neighbor.py defines it.
#pragma once

#include "begin.h"

namespace gids {

// A tile: relation, the first of its items (or edges) and the first not among them, as the relation counts.
struct Tile {
  int64_t relation, flat, begin, end;
};

BAM_HD inline Tile tile_at(const Plan& plan, int64_t hop, const int64_t* tiles, int64_t tile, const int64_t* firsts,
                           int64_t extra) {
  int64_t r = last_at_most(tiles, plan.num_relations, tile), flat = hop * plan.num_relations + r;
  int64_t count = firsts[flat + 1] - firsts[flat] - extra, begin = (tile - tiles[r]) * kTile;
  return {r, flat, begin, begin + kTile < count ? begin + kTile : count};
}

BAM_HD inline Tile item_tile(const Plan& plan, int64_t hop, int64_t tile) {
  return tile_at(plan, hop, plan.item_tiles, tile, plan.item_firsts, 1);
}

BAM_HD inline Tile edge_tile(const Plan& plan, int64_t hop, int64_t tile) {
  return tile_at(plan, hop, plan.edge_tiles, tile, plan.edge_firsts, 0);
}

BAM_HD inline int64_t node_of_item(const Plan& plan, int64_t hop, const Relation& relation, int64_t item) {
  return plan.nodes[plan.node_bases[relation.dst_type] + expanded_from(plan, hop, relation.dst_type) + item];
}

// The part of a tile that belongs to this member, so that members' parts stand in order of their ranks.
template <class Team>
BAM_HD Tile part_of(const Tile& tile, const Team& team) {
  int64_t each = (kTile + team.size() - 1) / team.size();
  int64_t begin = tile.begin + each * team.rank(), end = begin + each;
  return {tile.relation, tile.flat, begin < tile.end ? begin : tile.end, end < tile.end ? end : tile.end};
}

// Look up the in-edges of each item; edges taken in each tile.
template <class P, class Team>
BAM_HD void count(const Plan& plan, int64_t hop, Team& team, int64_t block, int64_t blocks) {
  if (stopped(plan)) return;
  int64_t tiles = plan.item_tiles[plan.num_relations];
  for (int64_t number = block; number < tiles; number += blocks) {
    Tile tile = item_tile(plan, hop, number);
    const Relation relation = plan.relations[tile.relation];
    int64_t fanout = plan.fanouts[tile.flat], first_item = plan.item_firsts[tile.flat], sum = 0, total;
    for (int64_t i = tile.begin + team.rank(); i < tile.end; i += team.size()) {
      int64_t item = first_item + i, start = 0, degree = 0;
      if (fanout != 0) {
        const int64_t* pointer = relation.indptr + node_of_item(plan, hop, relation, i);
        int64_t end = pointer[1];
        start = pointer[0];
        degree = end - start;
        if (start < 0 || degree < 0 || end > relation.num_edges || degree > kMaxDegree) {
          lower<P>(plan.report[kBadItem], item);
          degree = 0;
        }
      }
      plan.item_starts[item] = start;
      plan.item_degrees[item] = static_cast<uint32_t>(degree);
      sum += edges_taken(degree, fanout, plan.replace);
    }
    team.exclusive_sum(sum, total);
    if (team.rank() == 0) plan.tile_sums[number] = total;
  }
}

BAM_HD inline void stop_at_item(const Plan& plan, int64_t hop, int64_t item) {
  int64_t flat = last_at_most(plan.item_firsts, (hop + 1) * plan.num_relations, item);
  int64_t r = flat - hop * plan.num_relations;
  stop(plan, kBadIndptr, r, node_of_item(plan, hop, plan.relations[r], item - plan.item_firsts[flat]), 0);
}

// Where each tile's edges start, and each relation's.
template <class Team>
BAM_HD void plan_edges(const Plan& plan, int64_t hop, Team& team) {
  if (stopped(plan)) return;
  int64_t relations = plan.num_relations, flat = hop * relations, before = plan.edge_firsts[flat];
  int64_t tiles = plan.item_tiles[relations];
  team.sync();  // all have read what is written next
  int64_t total = prefix_sums(
      team, tiles, [&](int64_t i) { return plan.tile_sums[i]; }, [&](int64_t i, int64_t sum) { plan.tile_sums[i] = sum; });
  if (team.rank() == 0) plan.tile_sums[tiles] = total;
  team.sync();
  auto first = [&](int64_t r) { return plan.tile_sums[plan.item_tiles[r]]; };
  for (int64_t r = team.rank(); r < relations; r += team.size()) {
    plan.edge_firsts[flat + r] = before + first(r);
    plan.indptr[plan.item_firsts[flat + r + 1] - 1] = first(r + 1) - first(r);
  }
  int64_t edge_tiles = prefix_sums(
      team, relations, [&](int64_t r) { return (first(r + 1) - first(r) + kTile - 1) / kTile; },
      [&](int64_t r, int64_t sum) { plan.edge_tiles[r] = sum; });
  if (team.rank() != 0) return;
  plan.edge_firsts[flat + relations] = before + total;
  plan.edge_tiles[relations] = edge_tiles;
  if (plan.report[kBadItem] != kNothing)
    stop_at_item(plan, hop, plan.report[kBadItem]);
  else if (static_cast<uint64_t>(total) > new_bit(plan))
    stop(plan, kTooManyNodes, 0, total, 0);
  else if (before + total > plan.edge_capacity)
    stop(plan, kMoreEdges, hop, before + total, 0);
}

// Draw for the edges of one item; those that take all need no draw.
BAM_HD inline void draw(Key key, uint64_t node, uint32_t degree, uint32_t fanout, bool replace, uint32_t* drawn) {
  uint32_t first_last = replace ? degree : degree - fanout + 1;
  for (uint32_t group = 0; 4 * group < fanout; group++) {
    Words words = words_of(key, node, group, 0);
    for (uint32_t j = 0; j < 4; j++) {
      uint32_t index = 4 * group + j;
      if (index < fanout)
        drawn[index] = below(replace ? degree : first_last + index, word_at(words, j), key, node, index);
    }
  }
}

BAM_HD inline bool takes_all(int64_t taken, int64_t degree, int64_t fanout, bool replace) {
  return taken == degree && !(replace && fanout != kAll);
}

// Column pointers of each relation, and the draws.
template <class Team>
BAM_HD void place(const Plan& plan, int64_t hop, Team& team, int64_t block, int64_t blocks) {
  if (stopped(plan)) return;
  int64_t tiles = plan.item_tiles[plan.num_relations];
  for (int64_t number = block; number < tiles; number += blocks) {
    Tile tile = item_tile(plan, hop, number), part = part_of(tile, team);
    const Relation relation = plan.relations[tile.relation];
    int64_t fanout = plan.fanouts[tile.flat], first_item = plan.item_firsts[tile.flat], sum = 0, total;
    for (int64_t i = part.begin; i < part.end; i++)
      sum += edges_taken(plan.item_degrees[first_item + i], fanout, plan.replace);
    int64_t at = team.exclusive_sum(sum, total) + plan.tile_sums[number] - plan.tile_sums[plan.item_tiles[tile.relation]];
    for (int64_t i = part.begin; i < part.end; i++) {
      int64_t degree = plan.item_degrees[first_item + i], taken = edges_taken(degree, fanout, plan.replace);
      plan.indptr[first_item + i] = at;
      if (taken != 0 && !takes_all(taken, degree, fanout, plan.replace))
        draw(plan.keys[tile.flat], static_cast<uint64_t>(node_of_item(plan, hop, relation, i)),
             static_cast<uint32_t>(degree), static_cast<uint32_t>(taken), plan.replace,
             plan.drawn + plan.edge_firsts[tile.flat] + at);
      at += taken;
    }
  }
}

// A thread an edge reads all draws before its own: fanout^2 / 2 reads an item, which lie together and in the cache.
BAM_HD inline bool drawn_before(const uint32_t* drawn, uint32_t j) {
  for (uint32_t i = 0; i < j; i++)
    if (drawn[i] == drawn[j]) return true;
  return false;
}

// Draw `j` of Floyd's choice, once all candidates are known. Candidate t_j is replaced by `first_last + j` when
// an earlier draw has it: as its own candidate, or because it was replaced itself, and then t_j names it
// (t_j = first_last + i). So a chain of candidates is followed, and any repetition along it decides.
BAM_HD inline uint32_t distinct(const uint32_t* drawn, uint32_t j, uint32_t first_last) {
  for (uint32_t at = j;;) {
    if (drawn_before(drawn, at)) return first_last + j;
    if (drawn[at] < first_last || drawn[at] - first_last >= at) return drawn[j];
    at = drawn[at] - first_last;
  }
}

// The position among its node's in-edges of edge `edge` of a relation, and the item it belongs to.
BAM_HD inline int64_t position_of(const Plan& plan, const Tile& tile, int64_t edge) {
  int64_t first_item = plan.item_firsts[tile.flat];
  const int64_t* indptr = plan.indptr + first_item;
  int64_t item = last_at_most(indptr, plan.item_firsts[tile.flat + 1] - first_item, edge);
  int64_t begin = indptr[item], taken = indptr[item + 1] - begin, degree = plan.item_degrees[first_item + item];
  int64_t start = plan.item_starts[first_item + item];
  if (takes_all(taken, degree, plan.fanouts[tile.flat], plan.replace)) return start + edge - begin;
  const uint32_t* drawn = plan.drawn + plan.edge_firsts[tile.flat] + begin;
  uint32_t j = static_cast<uint32_t>(edge - begin);
  return start + (plan.replace ? drawn[j] : distinct(drawn, j, static_cast<uint32_t>(degree - taken)));
}

BAM_HD inline int64_t source_at(const Relation& relation, int64_t position) {
  return relation.index_bytes == 4 ? static_cast<const int32_t*>(relation.indices)[position]
                                   : static_cast<const int64_t*>(relation.indices)[position];
}

// Which edge is taken, its source, and the source's slot.
template <class P, class Team>
BAM_HD void resolve(const Plan& plan, int64_t hop, Team& team, int64_t block, int64_t blocks) {
  if (stopped(plan)) return;
  int64_t hop_first = plan.edge_firsts[hop * plan.num_relations], tiles = plan.edge_tiles[plan.num_relations];
  for (int64_t number = block; number < tiles; number += blocks) {
    Tile tile = edge_tile(plan, hop, number);
    const Relation relation = plan.relations[tile.relation];
    int64_t first_edge = plan.edge_firsts[tile.flat];
    for (int64_t i = tile.begin + team.rank(); i < tile.end; i += team.size()) {
      int64_t edge = first_edge + i, position = position_of(plan, tile, i);
      int64_t source = source_at(relation, position);
      uint32_t slot = kNoSlot;
      if (source < 0 || source >= plan.num_nodes[relation.src_type]) {
        lower<P>(plan.report[kBadEdge], edge);
      } else {
        slot = insert<P>(plan, plan.first_keys[relation.src_type] + source, new_bit(plan) + (edge - hop_first));
        if (slot == kNoSlot) table_is_full<P>(plan);
      }
      plan.positions[edge] = position;
      plan.edge_slots[edge] = slot;
    }
  }
}

// New nodes that each tile's edges are the first to reach.
template <class Team>
BAM_HD void flag(const Plan& plan, int64_t hop, Team& team, int64_t block, int64_t blocks) {
  if (stopped(plan)) return;
  int64_t hop_first = plan.edge_firsts[hop * plan.num_relations], tiles = plan.edge_tiles[plan.num_relations];
  for (int64_t number = block; number < tiles; number += blocks) {
    Tile tile = edge_tile(plan, hop, number);
    int64_t first_edge = plan.edge_firsts[tile.flat], sum = 0, total;
    for (int64_t i = tile.begin + team.rank(); i < tile.end; i += team.size()) {
      int64_t edge = first_edge + i;
      uint32_t slot = plan.edge_slots[edge];
      if (slot == kNoSlot || entry_value(plan, plan.slots[slot]) != new_bit(plan) + (edge - hop_first)) continue;
      plan.edge_slots[edge] = slot | kFirst;
      sum++;
    }
    team.exclusive_sum(sum, total);
    if (team.rank() == 0) plan.tile_sums[number] = total;
  }
}

// Node counts after the hop, local ids of each relation's new nodes, and the next hop's items.
template <class Team>
BAM_HD void plan_nodes(const Plan& plan, int64_t hop, Team& team) {
  if (stopped(plan)) return;
  int64_t relations = plan.num_relations, types = plan.num_types, tiles = plan.edge_tiles[relations];
  const int64_t* known = plan.node_counts + hop * types;
  int64_t* counts = plan.node_counts + (hop + 1) * types;
  team.sync();
  int64_t added = prefix_sums(
      team, tiles, [&](int64_t i) { return plan.tile_sums[i]; }, [&](int64_t i, int64_t sum) { plan.tile_sums[i] = sum; });
  if (team.rank() == 0) plan.tile_sums[tiles] = added;
  team.sync();
  auto first = [&](int64_t r) { return plan.tile_sums[plan.edge_tiles[r]]; };
  auto reached = [&](int64_t type, int64_t below) {
    int64_t sum = known[type];
    for (int64_t r = 0; r < below; r++)
      if (plan.relations[r].src_type == type) sum += first(r + 1) - first(r);
    return sum;
  };
  for (int64_t r = team.rank(); r < relations; r += team.size())
    plan.new_bases[r] = reached(plan.relations[r].src_type, r) - first(r);
  for (int64_t t = team.rank(); t < types; t += team.size()) counts[t] = reached(t, relations);
  team.sync();
  if (team.rank() == 0) {
    int64_t nodes = 0, most = 0, narrow = -1;
    for (int64_t t = 0; t < types; t++) {
      nodes += counts[t];
      if (counts[t] > most) most = counts[t];
      if (counts[t] > plan.node_bases[t + 1] - plan.node_bases[t]) narrow = t;
    }
    if (plan.report[kBadEdge] != kNothing) {
      int64_t edge = plan.report[kBadEdge];
      int64_t r = last_at_most(plan.edge_firsts + hop * relations, relations, edge);
      stop(plan, kBadIndex, r, source_at(plan.relations[r], plan.positions[edge]), 0);
    } else if (static_cast<uint64_t>(most) > new_bit(plan)) {
      stop(plan, kTooManyNodes, 0, most, 0);
    } else if (plan.report[kTableFull] || 2 * nodes > 1ll << plan.slot_bits) {
      stop(plan, kMoreSlots, 0, nodes, 0);
    } else if (narrow >= 0) {
      stop(plan, kMoreNodes, narrow, counts[narrow], 0);
    }
  }
  team.sync();
  if (hop + 1 < plan.num_hops && !stopped(plan)) plan_items(plan, hop + 1, team);
}

// Local ids of new nodes.
template <class Team>
BAM_HD void number(const Plan& plan, int64_t hop, Team& team, int64_t block, int64_t blocks) {
  if (stopped(plan)) return;
  int64_t tiles = plan.edge_tiles[plan.num_relations];
  for (int64_t number = block; number < tiles; number += blocks) {
    Tile tile = edge_tile(plan, hop, number), part = part_of(tile, team);
    const int64_t type = plan.relations[tile.relation].src_type, first_edge = plan.edge_firsts[tile.flat];
    int64_t sum = 0, total;
    for (int64_t i = part.begin; i < part.end; i++) sum += plan.edge_slots[first_edge + i] >> 31;
    int64_t local_id = plan.new_bases[tile.relation] + plan.tile_sums[number] + team.exclusive_sum(sum, total);
    for (int64_t i = part.begin; i < part.end; i++) {
      uint32_t slot = plan.edge_slots[first_edge + i];
      if (!(slot & kFirst)) continue;
      uint64_t key = entry_key(plan, plan.slots[slot & ~kFirst]);
      plan.slots[slot & ~kFirst] = key << plan.local_bits | static_cast<uint64_t>(local_id);
      plan.nodes[plan.node_bases[type] + local_id] = static_cast<int64_t>(key) - plan.first_keys[type];
      local_id++;
    }
  }
}

}  // namespace gids
