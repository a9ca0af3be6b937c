// The GPU sampler's steps compiled for the host: `blocks` teams of `members` threads run at the same time.
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "pack.h"

namespace {

using P = bam::HostPlatform;

// What the members of a team share.
struct Meeting {
  explicit Meeting(int64_t members) : barrier(members), values(members) {}
  std::barrier<> barrier;
  std::vector<int64_t> values;
};

class ThreadTeam {
 public:
  ThreadTeam(Meeting& meeting, int64_t rank) : meeting_(meeting), rank_(rank) {}
  int64_t rank() const { return rank_; }
  int64_t size() const { return static_cast<int64_t>(meeting_.values.size()); }
  void sync() const { meeting_.barrier.arrive_and_wait(); }

  int64_t exclusive_sum(int64_t value, int64_t& total) const {
    meeting_.values[rank_] = value;
    sync();
    int64_t below = 0;
    total = 0;
    for (int64_t i = 0; i < size(); i++) {
      if (i < rank_) below += meeting_.values[i];
      total += meeting_.values[i];
    }
    sync();
    return below;
  }

 private:
  Meeting& meeting_;
  int64_t rank_;
};

struct Launch {
  const char* name;
  const gids::Plan& plan;
  int64_t hop;
  const gids::Output* output;
};

template <class Team>
void run_thread(const Launch& launch, Team team, int64_t block, int64_t blocks) {
  const gids::Plan& plan = launch.plan;
  int64_t thread = block * team.size() + team.rank(), threads = blocks * team.size();
  auto is = [&](const char* name) { return std::strcmp(launch.name, name) == 0; };
  if (is("prepare")) gids::prepare(plan, thread, threads);
  else if (is("insert_seeds")) gids::insert_seeds<P>(plan, thread, threads);
  else if (is("start")) gids::start<P>(plan, team);
  else if (is("count")) gids::count<P>(plan, launch.hop, team, block, blocks);
  else if (is("plan_edges")) gids::plan_edges(plan, launch.hop, team);
  else if (is("place")) gids::place(plan, launch.hop, team, block, blocks);
  else if (is("resolve")) gids::resolve<P>(plan, launch.hop, team, block, blocks);
  else if (is("flag")) gids::flag(plan, launch.hop, team, block, blocks);
  else if (is("plan_nodes")) gids::plan_nodes(plan, launch.hop, team);
  else if (is("number")) gids::number(plan, launch.hop, team, block, blocks);
  else if (is("pack")) gids::pack(plan, *launch.output, thread, threads);
  else std::abort();
}

}  // namespace

extern "C" void run_kernel(const char* name, const gids::Plan* plan, int64_t hop, const gids::Output* output,
                           int64_t blocks, int64_t members) {
  Launch launch{name, *plan, hop, output};
  if (blocks * members == 1) return run_thread(launch, gids::OneThread{}, 0, 1);
  std::vector<std::unique_ptr<Meeting>> meetings;
  std::vector<std::thread> threads;
  for (int64_t block = 0; block < blocks; block++) {
    meetings.push_back(std::make_unique<Meeting>(members));
    for (int64_t rank = 0; rank < members; rank++)
      threads.emplace_back([&launch, &meeting = *meetings.back(), rank, block, blocks] {
        run_thread(launch, ThreadTeam(meeting, rank), block, blocks);
      });
  }
  for (std::thread& thread : threads) thread.join();
}

extern "C" uint64_t size_of(const char* name) {
  if (std::strcmp(name, "Plan") == 0) return sizeof(gids::Plan);
  if (std::strcmp(name, "Relation") == 0) return sizeof(gids::Relation);
  return sizeof(gids::Output);
}

extern "C" void draw_words(uint64_t seed, const uint32_t* numbers, uint64_t item, uint32_t draw, uint32_t n,
                           uint32_t* out) {
  gids::Key key = gids::stream_key(seed, numbers[0], numbers[1], numbers[2], numbers[3]);
  uint32_t first = gids::word_at(gids::words_of(key, item, draw >> 2, 0), draw & 3);
  out[0] = key.low;
  out[1] = key.high;
  out[2] = first;
  out[3] = gids::below(n, first, key, item, draw);
}
