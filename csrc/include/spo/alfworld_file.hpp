#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "spo/alfworld_world.hpp"

namespace spo::alfworld {

// Loads the bytes of a `game.tw-pddl` (JSON with pddl_domain, grammar, pddl_problem). `where` names it in
// messages.
std::shared_ptr<const World> load_game_file(std::string_view text, const std::string& where);

}  // namespace spo::alfworld
