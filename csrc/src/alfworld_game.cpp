#include "spo/alfworld_game.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "spo/alfworld_narrator.hpp"

namespace spo::alfworld {
namespace {

// The length of the white space (as Python's str.strip sees it) at the start of the UTF-8 text, or 0.
std::size_t leading_space(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned a = byte(0), b = byte(1), c = byte(2);
  if (text.empty()) return 0;
  if (a == ' ' || (a >= 0x09 && a <= 0x0D) || (a >= 0x1C && a <= 0x1F)) return 1;
  if (a == 0xC2 && (b == 0x85 || b == 0xA0)) return 2;
  if (a == 0xE1 && b == 0x9A && c == 0x80) return 3;
  if (a == 0xE2 && b == 0x80 && ((c >= 0x80 && c <= 0x8A) || c == 0xA8 || c == 0xA9 || c == 0xAF)) return 3;
  if (a == 0xE2 && b == 0x81 && c == 0x9F) return 3;
  if (a == 0xE3 && b == 0x80 && c == 0x80) return 3;
  return 0;
}

std::string_view strip(std::string_view text) {
  while (const std::size_t n = leading_space(text)) text.remove_prefix(n);
  for (bool again = true; again && !text.empty();) {
    again = false;
    for (std::size_t n = 1; n <= 3 && n <= text.size() && !again; ++n)
      if (leading_space(text.substr(text.size() - n)) == n) text.remove_suffix(n), again = true;
  }
  return text;
}

}  // namespace

Game::Game(std::shared_ptr<const World> world, std::int64_t max_steps)
    : world_(std::move(world)), max_steps_(max_steps), words_(world_->initial), won_(goal_holds()) {}

std::unique_ptr<Game> Game::copy() const {
  auto other = std::make_unique<Game>(world_, max_steps_);
  other->words_ = words_;
  other->won_ = won_;
  return other;
}

std::string Game::reset() {
  words_ = world_->initial;
  won_ = goal_holds();
  return Narrator(*this).intro();
}

StepResult Game::step(std::string_view command) {
  const std::int64_t steps = static_cast<std::int64_t>(++words_[world_->layout.steps]);
  StepResult result;
  const int index = world_->find_command(strip(command));
  if (index >= 0 && is_possible(world_->command(static_cast<std::size_t>(index)))) {
    const Command& chosen = world_->command(static_cast<std::size_t>(index));
    apply(chosen);
    result.observation = Narrator(*this).feedback(chosen);
    won_ = goal_holds();
  } else {
    result.observation = "Nothing happens.";
  }
  result.won = won_;
  result.truncated = !won_ && max_steps_ >= 0 && steps >= max_steps_;
  return result;
}

bool Game::is_possible(const Command& command) const {
  const auto [verb, object, other] = command;
  switch (verb) {
    case Verb::look:
    case Verb::inventory:
    case Verb::help: return true;
    case Verb::examine_receptacle: return is_here(other);
    case Verb::examine_object: return held() == object;
    case Verb::go_to: return !is_here(other);
    case Verb::open: return is_here(other) && !is_open(other);
    case Verb::close: return is_here(other) && is_open(other);
    case Verb::take:
      return held() < 0 && is_here(other) && is_accessible(other) && test_bit(contents(other), object);
    case Verb::move: return held() == object && is_here(other) && is_accessible(other);
    case Verb::clean:
    case Verb::heat:
    case Verb::cool: return held() == object && is_here(other);
    case Verb::slice: return held() == other && test_bit(objects_at(here()), object);
    case Verb::use:
      return std::any_of(world_->receptacles_at[here()].begin(), world_->receptacles_at[here()].end(),
                         [&](Index r) { return test_bit(contents(r), object); });
    case Verb::count: break;
  }
  return false;
}

void Game::apply(const Command& command) {
  const auto [verb, object, other] = command;
  const Layout& layout = world_->layout;
  const auto check = [&](Index entity) { set_bit(at(layout.checked), entity); };
  switch (verb) {
    case Verb::look: check(world_->locations[here()]); break;
    case Verb::inventory:
    case Verb::help: check(world_->agent); break;
    case Verb::examine_receptacle: check(world_->receptacles[other]); break;
    case Verb::examine_object: check(world_->objects[object]); break;
    case Verb::go_to:
      words_[layout.here] = static_cast<std::uint64_t>(world_->receptacle_traits[other].location);
      break;
    case Verb::open:
      set_bit(at(layout.opened), other);
      check(world_->receptacles[other]);
      break;
    case Verb::close: clear_bit(at(layout.opened), other); break;
    case Verb::take:
      // The object's recorded location can differ from the receptacle's; then it survives.
      clear_bit(at(layout.in + other * layout.row), object);
      set_bit(at(layout.taken + other * layout.row), object);
      clear_bit(at(layout.object_at + here() * layout.row), object);
      words_[layout.held] = object + 1u;
      break;
    case Verb::move:
      set_bit(at(layout.in + other * layout.row), object);
      clear_bit(at(layout.taken + other * layout.row), object);
      set_bit(at(layout.object_at + here() * layout.row), object);
      words_[layout.held] = 0;
      break;
    case Verb::clean: set_bit(at(layout.clean), object); break;
    case Verb::heat:
      set_bit(at(layout.hot), object);
      clear_bit(at(layout.cool), object);
      break;
    case Verb::cool:
      set_bit(at(layout.cool), object);
      clear_bit(at(layout.hot), object);
      break;
    case Verb::use:
      if (test_bit(at(layout.on), object)) clear_bit(at(layout.on), object);
      else set_bit(at(layout.on), object);
      set_bit(at(layout.toggled), object);
      break;
    case Verb::slice: set_bit(at(layout.sliced), object); break;
    case Verb::count: break;
  }
}

bool Game::satisfies(std::size_t object, const std::vector<Predicate>& conditions) const {
  const Layout& layout = world_->layout;
  return std::all_of(conditions.begin(), conditions.end(), [&](Predicate predicate) {
    switch (predicate) {
      case Predicate::is_clean: return test_bit(at(layout.clean), object);
      case Predicate::is_hot: return test_bit(at(layout.hot), object);
      case Predicate::is_cool: return test_bit(at(layout.cool), object);
      case Predicate::is_on: return test_bit(at(layout.on), object);
      case Predicate::is_toggled: return test_bit(at(layout.toggled), object);
      case Predicate::is_sliced: return test_bit(at(layout.sliced), object);
      case Predicate::checked: return test_bit(at(layout.checked), world_->objects[object]);
      default: return world_->is_static({predicate, world_->objects[object], 0});
    }
  });
}

bool Game::goal_holds() const {
  const Goal& goal = world_->goal;
  if (goal.task == Task::light) {
    const int object = held();
    const bool in_hand = object >= 0 &&
                         std::find(goal.objects.begin(), goal.objects.end(), object) != goal.objects.end() &&
                         satisfies(static_cast<std::size_t>(object), goal.conditions);
    return in_hand && std::any_of(goal.lamps.begin(), goal.lamps.end(), [&](Index lamp) {
             return is_possible({Verb::use, lamp, 0}) && satisfies(lamp, goal.lamp_conditions);
           });
  }
  const int needed = goal.task == Task::two ? 2 : 1;
  for (const Index receptacle : goal.receptacles) {
    int found = 0;
    for (const Index object : goal.objects)
      found += test_bit(contents(receptacle), object) && satisfies(object, goal.conditions);
    if (found >= needed) return true;
  }
  return false;
}

void Game::admissible(std::vector<int>& out) const {
  out.clear();
  const auto add = [&](Verb verb, std::size_t object, std::size_t other) {
    const int index = world_->find_command(verb, static_cast<Index>(object), static_cast<Index>(other));
    if (index >= 0) out.push_back(index);
  };
  for (const Verb verb : {Verb::look, Verb::inventory, Verb::help}) add(verb, 0, 0);
  for (Index r = 0; r < world_->receptacles.size(); ++r)
    if (!is_here(r)) add(Verb::go_to, 0, r);
  const int object = held();
  for (const Index r : world_->receptacles_at[here()]) {
    const World::ReceptacleTraits& traits = world_->receptacle_traits[r];
    add(Verb::examine_receptacle, 0, r);
    if (traits.openable) add(is_open(r) ? Verb::close : Verb::open, 0, r);
    for_each_bit(contents(r), world_->layout.row, [&](std::size_t o) {
      if (world_->object_traits[o].toggleable) add(Verb::use, o, 0);
      if (object < 0 && is_accessible(r)) add(Verb::take, o, r);
    });
    if (object < 0) continue;
    const auto o = static_cast<std::size_t>(object);
    if (is_accessible(r)) add(Verb::move, o, r);
    if (traits.cleans) add(Verb::clean, o, r);
    if (traits.heats) add(Verb::heat, o, r);
    if (traits.cools) add(Verb::cool, o, r);
  }
  if (object >= 0) {
    add(Verb::examine_object, static_cast<std::size_t>(object), 0);
    if (world_->object_traits[static_cast<std::size_t>(object)].knife)
      for_each_bit(objects_at(here()), world_->layout.row,
                   [&](std::size_t o) { add(Verb::slice, o, static_cast<std::size_t>(object)); });
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());  // one "use" per receptacle that holds the lamp
}

}  // namespace spo::alfworld
