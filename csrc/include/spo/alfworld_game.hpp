#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spo/alfworld_world.hpp"

namespace spo::alfworld {

// Everything about a running game, to go back to. Equal states answer every sequence of commands alike.
struct GameState {
  Hash128 world;  // identity of the game it belongs to
  std::vector<std::uint64_t> words;
  bool operator==(const GameState&) const = default;
};

std::string to_bytes(const GameState& state);
// Throws std::invalid_argument for bytes that to_bytes did not write.
GameState state_from_bytes(std::string_view bytes);

struct StepResult {
  std::string observation;
  bool won = false;
  bool truncated = false;
};

// A running game. Not safe for concurrent use; `claim` lets callers find that out.
class Game {
 public:
  // `max_steps` < 0: no limit.
  Game(std::shared_ptr<const World> world, std::int64_t max_steps);

  const World& world() const { return *world_; }
  const std::shared_ptr<const World>& shared_world() const { return world_; }
  std::int64_t max_steps() const { return max_steps_; }
  std::int64_t steps() const { return static_cast<std::int64_t>(words_[world_->layout.steps]); }

  // An independent running game in the same state.
  std::unique_ptr<Game> copy() const;

  std::string reset();
  StepResult step(std::string_view command);
  bool won() const { return won_; }

  // Indices into the world's commands, ascending: in the order of their texts.
  void admissible(std::vector<int>& out) const;

  GameState snapshot() const { return {world_->identity, words_}; }
  // Throws std::invalid_argument, changing nothing, if the state is not of this game.
  void restore(const GameState& state);
  Hash128 state_key() const;
  std::vector<Fact> facts() const;  // static ones too

  bool claim() { return !busy_.test_and_set(std::memory_order_acquire); }
  void release() { busy_.clear(std::memory_order_release); }

 private:
  friend class Narrator;

  std::uint64_t* at(std::size_t part) { return words_.data() + part; }
  const std::uint64_t* at(std::size_t part) const { return words_.data() + part; }
  std::size_t here() const { return words_[world_->layout.here]; }
  int held() const { return static_cast<int>(words_[world_->layout.held]) - 1; }  // slot, or -1
  const std::uint64_t* contents(std::size_t receptacle) const {
    return at(world_->layout.in + receptacle * world_->layout.row);
  }
  const std::uint64_t* objects_at(std::size_t location) const {
    return at(world_->layout.object_at + location * world_->layout.row);
  }
  const std::uint64_t* taken_from(std::size_t receptacle) const {
    return at(world_->layout.taken + receptacle * world_->layout.row);
  }
  bool is_here(Index receptacle) const {
    return world_->receptacle_traits[receptacle].location == static_cast<int>(here());
  }
  bool is_open(Index receptacle) const { return test_bit(at(world_->layout.opened), receptacle); }
  bool is_accessible(Index receptacle) const {
    return !world_->receptacle_traits[receptacle].openable || is_open(receptacle);
  }

  bool is_possible(const Command& command) const;
  void apply(const Command& command);
  bool satisfies(std::size_t object, const std::vector<Predicate>& conditions) const;
  bool goal_holds() const;

  std::shared_ptr<const World> world_;
  std::int64_t max_steps_;
  std::vector<std::uint64_t> words_;
  bool won_ = false;
  std::atomic_flag busy_;
};

}  // namespace spo::alfworld
