#pragma once
#include <string>
#include <string_view>

#include "spo/alfworld_game.hpp"

namespace spo::alfworld {

// Says what the grammar says about a game's state.
class Narrator {
 public:
  explicit Narrator(const Game& game) : game_(game), world_(game.world()) {}

  std::string intro() const;
  // The answer to a command that has just been applied.
  std::string feedback(const Command& command) const;

 private:
  std::string look() const;
  std::string inventory() const;
  std::string examine_receptacle(Index receptacle) const;
  std::string examine_object(Index object) const;
  bool is(std::size_t part, Index object) const { return test_bit(game_.at(part), object); }

  const Game& game_;
  const World& world_;
};

}  // namespace spo::alfworld
