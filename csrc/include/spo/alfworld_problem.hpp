#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spo/alfworld_world.hpp"
#include "spo/pddl.hpp"

namespace spo::alfworld {

// A problem file, read and type-checked: entities (the ids that occur in an initial fact), facts, and the
// goal's formula, not yet interpreted.
struct Problem {
  std::vector<Entity> entities;  // sorted by id; slots assigned
  std::vector<Fact> facts;       // sorted, without repetition
  Sexp goal;
  std::map<std::string, Kind, std::less<>> declared;

  // The entity of that id, or -1.
  int find(std::string_view id) const;
};

Problem read_problem(std::string_view text, const std::string& where);

// Which of the six tasks the formula asks for; anything else is refused.
Goal read_goal(const Problem& problem, const std::string& where);

// The kind that a type's name stands for; Kind::any if none.
Kind kind_called(std::string_view type);

}  // namespace spo::alfworld
