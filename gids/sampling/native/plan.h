// What the steps of a mini-batch read and write: the graph, the settings, and buffers of a fixed size.
//
// Sizes are found on the GPU and stay there until the mini-batch is complete: each step reads the sizes that
// the step before it wrote. When a buffer turns out too small, the rest of the mini-batch does nothing, and
// the host, which reads `report` once, makes it again with a larger buffer.
#pragma once

#include "bam/platform.h"
#include "philox.h"

namespace gids {

constexpr int64_t kAll = -1;       // fanout that takes every neighbour
constexpr int64_t kTile = 256;     // items or edges of one unit of parallel work; all of one relation
constexpr uint32_t kFirst = 1u << 31;  // in `edge_slots`: the edge is the first that reached its source
constexpr int64_t kMaxDegree = 0xFFFFFFFFll;

// Why a mini-batch stopped, in report[kStop]. Values up to kTooManyNodes are those of batch_kernel.py.
enum Stop : int64_t {
  kOk,
  kDuplicateSeed,
  kSeedOutOfRange,
  kBadIndptr,
  kBadIndex,
  kTooManyNodes,
  kMoreItems,
  kMoreEdges,
  kMoreNodes,
  kMoreSlots,
};

// The first words of the report; tables follow (see `Plan`).
enum ReportWord : int64_t { kStop, kIndex, kValue, kPosition, kBadSeed, kBadItem, kBadEdge, kTableFull, kReportWords };

// One edge type.
struct Relation {
  const int64_t* indptr;
  const void* indices;
  const int64_t* edge_ids;  // null: an edge's id is its position
  int64_t num_edges;
  int64_t index_bytes;  // 4 or 8
  int64_t src_type;
  int64_t dst_type;
};

// The words of a request: seed, epoch, batch, seeds of each type, and the seeds themselves.
enum RequestWord : int64_t { kSeed, kEpoch, kBatch, kSeedCounts };

// An *item* is one node and one relation into it: what draws once in a hop. "Flat" tables have an entry for
// each hop and relation, hop by hop, and one more at the end.
struct Plan {
  const Relation* relations;
  const int64_t* num_nodes;   // of each type
  const int64_t* first_keys;  // of each type: a node's key in the hash table is this plus its id
  const int64_t* fanouts;     // [hops][relations]; hop 0 is at the seeds
  const int64_t* request;
  int64_t num_relations, num_types, num_hops;
  int64_t replace, resample;

  uint64_t* slots;  // hash table: key << local_bits | local id, see slots.h
  int64_t slot_bits, local_bits;
  int64_t* nodes;             // of each type from node_bases[t] on
  const int64_t* node_bases;  // [types + 1]
  int64_t* item_starts;       // for each item: where its in-edges start,
  uint32_t* item_degrees;     //   how many they are,
  int64_t* indptr;            //   and where its taken edges start, counted within hop and relation
  uint32_t* drawn;            // for each edge: its draw, where one was needed,
  int64_t* positions;         //   its position in the graph,
  uint32_t* edge_slots;       //   and the slot of its source
  int64_t item_capacity, edge_capacity;
  int64_t* tile_sums;

  Key* keys;              // [hops][relations]
  int64_t* item_tiles;    // [relations + 1]: first tile of each relation's items in this hop,
  int64_t* edge_tiles;    //   and of its edges
  int64_t* new_bases;     // [relations]: local id of a relation's first new source
  int64_t* report;        // ReportWord ..., then
  int64_t* node_counts;   //   [hops + 1][types]: nodes known before hop 0 and after each hop
  int64_t* item_firsts;   //   flat: first entry in `indptr`; n items have n + 1 entries
  int64_t* edge_firsts;   //   flat: first edge
};

BAM_HD inline bool stopped(const Plan& plan) { return plan.report[kStop] != kOk; }

BAM_HD inline void stop(const Plan& plan, Stop code, int64_t index, int64_t value, int64_t position) {
  plan.report[kStop] = code;
  plan.report[kIndex] = index;
  plan.report[kValue] = value;
  plan.report[kPosition] = position;
}

// Known nodes of a type that a hop expands: from the first of these local ids to the second, exclusive.
BAM_HD inline int64_t expanded_from(const Plan& plan, int64_t hop, int64_t type) {
  return plan.resample || hop == 0 ? 0 : plan.node_counts[(hop - 1) * plan.num_types + type];
}

BAM_HD inline int64_t expanded_to(const Plan& plan, int64_t hop, int64_t type) {
  return plan.node_counts[hop * plan.num_types + type];
}

// The last index of a rising table whose entry is at most `value`; entry 0 is.
BAM_HD inline int64_t last_at_most(const int64_t* table, int64_t entries, int64_t value) {
  int64_t low = 0, high = entries;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (table[middle] <= value)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Edges that an item with so many in-edges takes.
BAM_HD inline int64_t edges_taken(int64_t degree, int64_t fanout, bool replace) {
  if (fanout == 0 || degree == 0) return 0;
  return fanout == kAll || (degree <= fanout && !replace) ? degree : fanout;
}

}  // namespace gids
