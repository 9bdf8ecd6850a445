#include "spo/alfworld_batch.hpp"

#include <algorithm>
#include <stdexcept>

#include "spo/threads.hpp"

namespace spo::alfworld {
namespace {

// A step takes about a microsecond and waking a thread some ten: fewer games a thread are not worth it.
constexpr std::size_t games_per_thread = 64;

template <class F>
std::vector<BatchStep> for_all(const std::vector<Game*>& games, std::size_t threads, F&& play) {
  std::vector<BatchStep> out(games.size());
  parallel_for(games.size(), std::min(threads, games.size() / games_per_thread), [&](std::size_t i) {
    out[i].step = play(i);
    games[i]->admissible(out[i].admissible);
  });
  return out;
}

}  // namespace

Claim::Claim(std::vector<Game*> games) : games_(std::move(games)) {
  for (std::size_t i = 0; i < games_.size(); ++i) {
    if (games_[i]->claim()) continue;
    while (i > 0) games_[--i]->release();
    throw std::runtime_error("a game is in use by another thread; copy() it to play it twice at once");
  }
}

Claim::~Claim() {
  for (Game* game : games_) game->release();
}

std::vector<BatchStep> reset_all(const std::vector<Game*>& games, std::size_t threads) {
  return for_all(games, threads, [&](std::size_t i) {
    std::string observation = games[i]->reset();
    return StepResult{std::move(observation), games[i]->won(), false};
  });
}

std::vector<BatchStep> step_all(const std::vector<Game*>& games,
                                const std::vector<std::string_view>& commands, std::size_t threads) {
  return for_all(games, threads, [&](std::size_t i) { return games[i]->step(commands[i]); });
}

}  // namespace spo::alfworld
