#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include "spo/alfworld_game.hpp"

namespace spo::alfworld {

// Marks games as in use for as long as it lives; throws std::runtime_error if one is already.
class Claim {
 public:
  explicit Claim(std::vector<Game*> games);
  explicit Claim(Game& game) : Claim(std::vector<Game*>{&game}) {}
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  std::vector<Game*> games_;
};

struct BatchStep {
  StepResult step;
  std::vector<int> admissible;
};

// Resets or steps each game once, in parallel on up to `threads` threads where that pays. The caller holds
// the claim.
std::vector<BatchStep> reset_all(const std::vector<Game*>& games, std::size_t threads);
std::vector<BatchStep> step_all(const std::vector<Game*>& games,
                                const std::vector<std::string_view>& commands, std::size_t threads);

}  // namespace spo::alfworld
