// From the buffers to arrays of the mini-batch's own, of exactly its size.
#pragma once

#include "hop.h"

namespace gids {

// Where the arrays lie, and for each hop and relation where its part of them starts.
struct Output {
  int64_t* nodes;     // those of each type behind those of the type before
  int64_t* indptr;
  int64_t* sources;   // local ids
  int64_t* edge_ids;  // null: not wanted
  const int64_t* item_places;  // flat: first entry of each hop's and relation's column pointers,
  const int64_t* edge_addends; //   what is added to each of them,
  const int64_t* edge_places;  //   and the place of the first edge
};

BAM_HD inline void pack_nodes(const Plan& plan, const Output& output, int64_t thread, int64_t threads) {
  const int64_t* counts = plan.node_counts + plan.num_hops * plan.num_types;
  int64_t before = 0;
  for (int64_t t = 0; t < plan.num_types; before += counts[t++])
    for (int64_t i = thread; i < counts[t]; i += threads) output.nodes[before + i] = plan.nodes[plan.node_bases[t] + i];
}

BAM_HD inline void pack_indptr(const Plan& plan, const Output& output, int64_t thread, int64_t threads) {
  int64_t flats = plan.num_hops * plan.num_relations, items = plan.item_firsts[flats];
  for (int64_t i = thread; i < items; i += threads) {
    int64_t flat = last_at_most(plan.item_firsts, flats, i);
    output.indptr[output.item_places[flat] + i - plan.item_firsts[flat]] = plan.indptr[i] + output.edge_addends[flat];
  }
}

BAM_HD inline void pack_edges(const Plan& plan, const Output& output, int64_t thread, int64_t threads) {
  int64_t flats = plan.num_hops * plan.num_relations, edges = plan.edge_firsts[flats];
  for (int64_t i = thread; i < edges; i += threads) {
    int64_t flat = last_at_most(plan.edge_firsts, flats, i);
    int64_t place = output.edge_places[flat] + i - plan.edge_firsts[flat];
    uint64_t entry = plan.slots[plan.edge_slots[i] & ~kFirst];
    output.sources[place] = static_cast<int64_t>(entry_value(plan, entry));
    if (output.edge_ids == nullptr) continue;
    const int64_t* ids = plan.relations[flat % plan.num_relations].edge_ids;
    output.edge_ids[place] = ids == nullptr ? plan.positions[i] : ids[plan.positions[i]];
  }
}

BAM_HD inline void pack(const Plan& plan, const Output& output, int64_t thread, int64_t threads) {
  pack_nodes(plan, output, thread, threads);
  pack_indptr(plan, output, thread, threads);
  pack_edges(plan, output, thread, threads);
}

}  // namespace gids
