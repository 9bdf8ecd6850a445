#include "spo/alfworld_world.hpp"

#include <algorithm>
#include <numeric>

#include "spo/alfworld_dialect.hpp"
#include "spo/alfworld_problem.hpp"

namespace spo::alfworld {
namespace {

// A real game has at most some 5,000.
constexpr std::size_t max_commands = 200000;

bool changes(Predicate predicate) {
  switch (predicate) {
    case Predicate::at_location:
    case Predicate::object_at_location:
    case Predicate::opened:
    case Predicate::in_receptacle:
    case Predicate::checked:
    case Predicate::holds:
    case Predicate::holds_any:
    case Predicate::is_clean:
    case Predicate::is_hot:
    case Predicate::is_cool:
    case Predicate::is_on:
    case Predicate::is_toggled:
    case Predicate::is_sliced: return true;
    default: return false;
  }
}

}  // namespace

class WorldBuilder {
 public:
  WorldBuilder(World& world, Problem problem, const std::string& where)
      : world_(world), problem_(std::move(problem)), where_(where) {}

  void build() {
    world_.goal = read_goal(problem_, where_);
    list_entities();
    read_traits();
    lay_out();
    fill_initial_state();
    list_commands();
    identify();
    std::copy_if(problem_.facts.begin(), problem_.facts.end(), std::back_inserter(world_.static_facts),
                 [](const Fact& f) { return !changes(f.predicate); });
    world_.entities = std::move(problem_.entities);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ParseError(where_ + ": " + what); }

  const std::string& id(Index entity) const { return problem_.entities[entity].id; }
  Index slot(Index entity) const { return problem_.entities[entity].slot; }

  void list_entities() {
    int agents = 0;
    for (std::size_t i = 0; i < problem_.entities.size(); ++i) {
      const auto entity = static_cast<Index>(i);
      switch (problem_.entities[i].kind) {
        case Kind::agent: world_.agent = entity, ++agents; break;
        case Kind::object: world_.objects.push_back(entity); break;
        case Kind::receptacle: world_.receptacles.push_back(entity); break;
        case Kind::location: world_.locations.push_back(entity); break;
        default: break;
      }
    }
    if (agents != 1) fail("the facts must mention exactly one agent, not " + std::to_string(agents));
  }

  void read_traits() {
    world_.object_traits.resize(world_.objects.size());
    world_.receptacle_traits.resize(world_.receptacles.size());
    world_.receptacles_at.resize(world_.locations.size());
    for (const Fact& fact : problem_.facts) {
      switch (fact.predicate) {
        case Predicate::pickupable: object(fact).pickupable = true; break;
        case Predicate::cleanable: object(fact).cleanable = true; break;
        case Predicate::heatable: object(fact).heatable = true; break;
        case Predicate::coolable: object(fact).coolable = true; break;
        case Predicate::toggleable: object(fact).toggleable = true; break;
        case Predicate::sliceable: object(fact).sliceable = true; break;
        case Predicate::is_receptacle_object: object(fact).holds_objects = true; break;
        case Predicate::in_receptacle_object:
          world_.object_traits[slot(fact.second)].inside.push_back(slot(fact.first));
          break;
        case Predicate::object_type:
          object(fact).knife |= id(fact.second) == "knifetype" || id(fact.second) == "butterknifetype";
          break;
        case Predicate::openable: receptacle(fact).openable = true; break;
        case Predicate::receptacle_type: {
          const std::string& type = id(fact.second);
          World::ReceptacleTraits& traits = receptacle(fact);
          traits.cleans |= type == "sinktype" || type == "sinkbasintype";
          traits.heats |= type == "microwavetype";
          traits.cools |= type == "fridgetype";
          break;
        }
        case Predicate::receptacle_at_location:
          if (receptacle(fact).location >= 0) fail(quoted(id(fact.first)) + " is at two locations");
          receptacle(fact).location = slot(fact.second);
          world_.receptacles_at[slot(fact.second)].push_back(slot(fact.first));
          break;
        default: break;
      }
    }
    read_can_contain();
  }

  World::ObjectTraits& object(const Fact& fact) { return world_.object_traits[slot(fact.first)]; }
  World::ReceptacleTraits& receptacle(const Fact& fact) { return world_.receptacle_traits[slot(fact.first)]; }

  // canContain relates types; what a move asks is whether some type of the receptacle holds some type of the
  // object.
  void read_can_contain() {
    world_.can_contain_.assign(world_.objects.size() * world_.receptacles.size(), false);
    const std::size_t count = problem_.entities.size();
    std::vector<std::vector<Index>> objects_of(count), receptacles_of(count);
    for (const Fact& fact : problem_.facts) {
      if (fact.predicate == Predicate::object_type) objects_of[fact.second].push_back(slot(fact.first));
      if (fact.predicate == Predicate::receptacle_type)
        receptacles_of[fact.second].push_back(slot(fact.first));
    }
    for (const Fact& fact : problem_.facts)
      if (fact.predicate == Predicate::can_contain)
        for (const Index receptacle : receptacles_of[fact.first])
          for (const Index object : objects_of[fact.second])
            world_.can_contain_[receptacle * world_.objects.size() + object] = true;
  }

  void lay_out() {
    Layout& layout = world_.layout;
    layout.row = words_for(world_.objects.size());
    std::size_t at = 0;
    const auto part = [&](std::size_t& start, std::size_t words) { start = at, at += words; };
    part(layout.steps, 1);
    part(layout.checked, words_for(problem_.entities.size()));
    part(layout.on, layout.row);
    part(layout.taken, layout.row * world_.receptacles.size());
    layout.key = at;
    part(layout.here, 1);
    part(layout.held, 1);
    part(layout.opened, words_for(world_.receptacles.size()));
    for (std::size_t* set : {&layout.clean, &layout.hot, &layout.cool, &layout.toggled, &layout.sliced})
      part(*set, layout.row);
    part(layout.in, layout.row * world_.receptacles.size());
    part(layout.object_at, layout.row * world_.locations.size());
    layout.total = at;
  }

  void fill_initial_state() {
    const Layout& layout = world_.layout;
    world_.initial.assign(layout.total, 0);
    std::uint64_t* words = world_.initial.data();
    int places = 0, held = 0, holds_any = 0;
    for (const Fact& fact : problem_.facts) {
      const std::size_t first = slot(fact.first), second = slot(fact.second);
      switch (fact.predicate) {
        case Predicate::at_location: words[layout.here] = second, ++places; break;
        case Predicate::holds: words[layout.held] = second + 1, ++held; break;
        case Predicate::holds_any: ++holds_any; break;
        case Predicate::opened: set_bit(words + layout.opened, first); break;
        case Predicate::checked: set_bit(words + layout.checked, fact.first); break;
        case Predicate::is_clean: set_bit(words + layout.clean, first); break;
        case Predicate::is_hot: set_bit(words + layout.hot, first); break;
        case Predicate::is_cool: set_bit(words + layout.cool, first); break;
        case Predicate::is_on: set_bit(words + layout.on, first); break;
        case Predicate::is_toggled: set_bit(words + layout.toggled, first); break;
        case Predicate::is_sliced: set_bit(words + layout.sliced, first); break;
        case Predicate::in_receptacle: set_bit(words + layout.in + second * layout.row, first); break;
        case Predicate::object_at_location:
          set_bit(words + layout.object_at + second * layout.row, first);
          break;
        default: break;
      }
    }
    if (places != 1) fail("the agent must be at exactly one location, not " + std::to_string(places));
    if (held > 1 || held != holds_any) fail("the agent must hold nothing, or one object and 'holdsAny'");
  }

  void list_commands() {
    const std::size_t objects = world_.objects.size(), receptacles = world_.receptacles.size();
    for (const Verb verb : {Verb::look, Verb::inventory, Verb::help})
      add(verb, 0, 0, verb == Verb::look ? "look" : verb == Verb::help ? "help" : "inventory");
    for (Index r = 0; r < receptacles; ++r) {
      const World::ReceptacleTraits& traits = world_.receptacle_traits[r];
      if (traits.location < 0) continue;
      const std::string& name = receptacle_name(r);
      add(Verb::go_to, 0, r, "go to " + name);
      add(Verb::examine_receptacle, 0, r, "examine " + name);
      if (traits.openable) add(Verb::open, 0, r, "open " + name), add(Verb::close, 0, r, "close " + name);
    }
    for (Index o = 0; o < objects; ++o) {
      const World::ObjectTraits& traits = world_.object_traits[o];
      const std::string& name = object_name(o);
      if (traits.toggleable) add(Verb::use, o, 0, "use " + name);
      const bool holdable = traits.pickupable || world_.initial[world_.layout.held] == o + 1u;
      if (traits.sliceable)
        for (Index k = 0; k < objects; ++k)
          if (world_.object_traits[k].knife)
            add(Verb::slice, o, k, "slice " + name + " with " + object_name(k));
      if (!holdable) continue;
      add(Verb::examine_object, o, 0, "examine " + name);
      for (Index r = 0; r < receptacles; ++r) {
        const World::ReceptacleTraits& place = world_.receptacle_traits[r];
        if (place.location < 0) continue;
        const std::string& place_name = receptacle_name(r);
        const bool fits = world_.can_contain(r, o);
        if (fits) add(Verb::move, o, r, "move " + name + " to " + place_name);
        if (fits || test_bit(world_.initial.data() + world_.layout.in + r * world_.layout.row, o))
          add(Verb::take, o, r, "take " + name + " from " + place_name);
        if (traits.cleanable && place.cleans) add(Verb::clean, o, r, "clean " + name + " with " + place_name);
        if (traits.heatable && place.heats) add(Verb::heat, o, r, "heat " + name + " with " + place_name);
        if (traits.coolable && place.cools) add(Verb::cool, o, r, "cool " + name + " with " + place_name);
      }
    }
    sort_commands();
  }

  const std::string& object_name(Index o) const { return problem_.entities[world_.objects[o]].name; }
  const std::string& receptacle_name(Index r) const { return problem_.entities[world_.receptacles[r]].name; }

  void add(Verb verb, Index object, Index other, std::string text) {
    if (drafts_.size() >= max_commands) fail("more than " + std::to_string(max_commands) + " commands");
    drafts_.push_back({std::move(text), {verb, object, other}});
  }

  void sort_commands() {
    std::sort(drafts_.begin(), drafts_.end(), [](const Draft& a, const Draft& b) { return a.text < b.text; });
    const std::size_t objects = world_.objects.size(), receptacles = world_.receptacles.size();
    for (std::size_t v = 0; v < world_.command_by_parts_.size(); ++v)
      world_.command_by_parts_[v].assign(table_size(static_cast<Verb>(v), objects, receptacles), -1);
    world_.command_starts_.push_back(0);
    for (const Draft& draft : drafts_) {
      world_.command_texts_ += draft.text;
      world_.command_starts_.push_back(static_cast<std::uint32_t>(world_.command_texts_.size()));
      world_.commands_.push_back(draft.command);
    }
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      const Command& command = drafts_[i].command;
      world_.command_by_text_.emplace(world_.command_text(i), static_cast<int>(i));
      world_.command_by_parts_[static_cast<std::size_t>(
          command.verb)][command.object * table_columns(command.verb, objects, receptacles) + command.other] =
          static_cast<int>(i);
    }
  }

  static std::size_t table_columns(Verb verb, std::size_t objects, std::size_t receptacles);
  static std::size_t table_size(Verb verb, std::size_t objects, std::size_t receptacles);

  void identify() {
    std::string text =
        "spo_fast alfworld 1\n" + world_.task + "\n" + std::string(task_type_name(world_.goal.task)) + "\n";
    const Goal& goal = world_.goal;
    for (const Index type :
         {goal.object_type, goal.task == Task::light ? goal.lamp_type : goal.receptacle_type})
      text += id(type) + "\n";
    for (const auto* conditions : {&goal.conditions, &goal.lamp_conditions}) {
      std::vector<std::string_view> names;
      for (const Predicate p : *conditions) names.push_back(signature(p).name);
      std::sort(names.begin(), names.end());
      for (const std::string_view name : names) text += std::string(name) + " ";
      text += "\n";
    }
    for (const Fact& fact : problem_.facts) {
      text += std::string(signature(fact.predicate).name) + " " + id(fact.first);
      if (signature(fact.predicate).arity == 2) text += " " + id(fact.second);
      text += "\n";
    }
    world_.identity = hash128(text);
  }

  struct Draft {
    std::string text;
    Command command;
  };

  World& world_;
  Problem problem_;
  const std::string& where_;
  std::vector<Draft> drafts_;

  friend class World;
};

// Commands of one thing are looked up by row (object) or column (receptacle) alone.
std::size_t WorldBuilder::table_columns(Verb verb, std::size_t objects, std::size_t receptacles) {
  switch (verb) {
    case Verb::look:
    case Verb::inventory:
    case Verb::help:
    case Verb::use:
    case Verb::examine_object: return 1;
    case Verb::slice: return objects;
    default: return receptacles;
  }
}

std::size_t WorldBuilder::table_size(Verb verb, std::size_t objects, std::size_t receptacles) {
  switch (verb) {
    case Verb::look:
    case Verb::inventory:
    case Verb::help: return 1;
    case Verb::go_to:
    case Verb::examine_receptacle:
    case Verb::open:
    case Verb::close: return receptacles;
    default: return objects * table_columns(verb, objects, receptacles);
  }
}

World::World(std::string_view domain, std::string_view grammar, std::string_view problem,
             const std::string& where) {
  check_domain(domain, "domain of " + where);
  task = check_grammar(grammar, "grammar of " + where);
  const std::string problem_where = "problem of " + where;
  WorldBuilder(*this, read_problem(problem, problem_where), problem_where).build();
}

bool World::is_static(const Fact& fact) const {
  return std::binary_search(static_facts.begin(), static_facts.end(), fact);
}

int World::find_command(std::string_view text) const {
  const auto at = command_by_text_.find(text);
  return at == command_by_text_.end() ? -1 : at->second;
}

int World::find_command(Verb verb, Index object, Index other) const {
  const std::size_t columns = WorldBuilder::table_columns(verb, objects.size(), receptacles.size());
  return command_by_parts_[static_cast<std::size_t>(verb)][object * columns + other];
}

}  // namespace spo::alfworld
