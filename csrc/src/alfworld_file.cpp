#include "spo/alfworld_file.hpp"

#include "spo/json.hpp"

namespace spo::alfworld {
namespace {

// Real files have some 100 kB.
constexpr std::size_t max_bytes = std::size_t{16} << 20;

}  // namespace

std::shared_ptr<const World> load_game_file(std::string_view text, const std::string& where) {
  if (text.size() > max_bytes)
    throw ParseError(where + ": " + std::to_string(text.size()) + " bytes are no game; at most " +
                     std::to_string(max_bytes) + " are read");
  const Json json = parse_json(text, where);
  const auto member = [&](const char* name) -> const std::string& {
    const Json* found = json.find(name);
    if (!found || !found->string())
      throw ParseError(where + ": the member " + quoted(name) +
                       " is missing or not a text; this is not a game.tw-pddl");
    return *found->string();
  };
  const std::string &domain = member("pddl_domain"), &grammar = member("grammar"),
                    &problem = member("pddl_problem");
  return std::make_shared<const World>(domain, grammar, problem, where);
}

}  // namespace spo::alfworld
