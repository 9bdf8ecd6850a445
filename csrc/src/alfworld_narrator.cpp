#include "spo/alfworld_narrator.hpp"

#include "spo/alfworld_dialect.hpp"

namespace spo::alfworld {
namespace {

// "nothing", "x", "x, and y", "x, y, and z".
class List {
 public:
  void add(std::string_view article, std::string_view name) {
    if (count_++ > 0) out_ += ", ", last_ = out_.size();
    out_ += article;
    out_ += name;
  }

  std::string str() {
    if (count_ == 0) return "nothing";
    if (count_ > 1) out_.insert(last_, "and ");
    return std::move(out_);
  }

 private:
  std::string out_;
  std::size_t count_ = 0, last_ = 0;
};

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  out.reserve((std::string_view(parts).size() + ...));
  (out.append(parts), ...);
  return out;
}

}  // namespace

std::string Narrator::intro() const {
  std::string surroundings;
  if (world_.receptacles_at[game_.here()].empty()) {
    // Unlike in "look", the grammar's receptacle and location are unbound here: all receptacles are listed.
    List all;
    for (Index r = 0; r < world_.receptacles.size(); ++r)
      if (world_.receptacle_traits[r].location >= 0) all.add("a ", world_.receptacle_name(r));
    surroundings =
        concat("You are in the middle of a room. Looking quickly around you, you see ", all.str(), ".");
  } else {
    surroundings = look();
  }
  return concat("-= Welcome to TextWorld, ALFRED! =-\n\n", surroundings,
                "\n\nYour task is to: ", world_.task);
}

std::string Narrator::feedback(const Command& command) const {
  const auto [verb, object, other] = command;
  const auto object_name = [&] { return std::string_view(world_.object_name(command.object)); };
  const auto place = [&] { return std::string_view(world_.receptacle_name(command.other)); };
  switch (verb) {
    case Verb::look: return look();
    case Verb::inventory: return inventory();
    case Verb::help: return help_text();
    case Verb::examine_receptacle: return examine_receptacle(other);
    case Verb::examine_object: return examine_object(object);
    case Verb::go_to: return concat("You arrive at ", place(), ". ", examine_receptacle(other));
    case Verb::open: return concat("You open the ", place(), ". ", examine_receptacle(other));
    case Verb::close: return concat("You close the ", place(), ".");
    case Verb::take: return concat("You pick up the ", object_name(), " from the ", place(), ".");
    case Verb::move: return concat("You move the ", object_name(), " to the ", place(), ".");
    case Verb::clean: return concat("You clean the ", object_name(), " using the ", place(), ".");
    case Verb::heat: return concat("You heat the ", object_name(), " using the ", place(), ".");
    case Verb::cool: return concat("You cool the ", object_name(), " using the ", place(), ".");
    case Verb::use: return concat("You turn on the ", object_name(), ".");  // isToggled latches: never "off"
    case Verb::slice:
      return concat("You sliced the ", object_name(), " with the ", world_.object_name(other), ".");
    case Verb::count: break;
  }
  return "";
}

std::string Narrator::look() const {
  const auto& around = world_.receptacles_at[game_.here()];
  if (around.empty()) return "You are in the middle of a room. Looking quickly around you, you see nothing.";
  List facing, floor;
  for (const Index r : around) facing.add("", world_.receptacle_name(r));
  // The objects of this place that were taken out of a receptacle here and not put back, once for each such
  // receptacle.
  for_each_bit(game_.objects_at(game_.here()), world_.layout.row, [&](std::size_t o) {
    for (const Index r : around)
      if (test_bit(game_.taken_from(r), o)) floor.add("a ", world_.object_name(static_cast<Index>(o)));
  });
  return concat("You are facing the ", facing.str(), ". Next to it, you see ", floor.str(), ".");
}

std::string Narrator::inventory() const {
  const int held = game_.held();
  if (held < 0) return "You are not carrying anything.";
  return concat("You are carrying: a ", world_.object_name(static_cast<Index>(held)), ".");
}

std::string Narrator::examine_receptacle(Index receptacle) const {
  const std::string& name = world_.receptacle_name(receptacle);
  const bool openable = world_.receptacle_traits[receptacle].openable;
  if (openable && !game_.is_open(receptacle)) return concat("The ", name, " is closed.");
  List list;
  for_each_bit(game_.contents(receptacle), world_.layout.row,
               [&](std::size_t o) { list.add("a ", world_.object_name(static_cast<Index>(o))); });
  return openable ? concat("The ", name, " is open. In it, you see ", list.str(), ".")
                  : concat("On the ", name, ", you see ", list.str(), ".");
}

std::string Narrator::examine_object(Index object) const {
  const World::ObjectTraits& traits = world_.object_traits[object];
  const std::string& name = world_.object_name(object);
  if (traits.holds_objects) {
    List inside;
    for (const Index o : traits.inside) inside.add("a ", world_.object_name(o));
    return concat("This is a normal ", name, ". In it, you see ", inside.str(), ".");
  }
  const Layout& layout = world_.layout;
  const bool clean = is(layout.clean, object), hot = is(layout.hot, object), cool = is(layout.cool, object),
             sliced = is(layout.sliced, object);
  std::string_view adjectives;
  if (clean && hot) adjectives = "hot and clean ";
  else if (clean && cool) adjectives = "cool and clean ";
  else if (hot) adjectives = "hot ";
  else if (clean) adjectives = "clean ";
  else if (cool) adjectives = sliced ? "cool " : "cold ";
  if (!adjectives.empty()) return concat("This is a ", adjectives, sliced ? "sliced " : "", name, ".");
  if (traits.toggleable && is(layout.toggled, object)) return concat("This ", name, " is on.");
  if (traits.sliceable && sliced) return concat("This is a sliced ", name, ".");
  return concat("There's nothing special about ", name, ".");
}

}  // namespace spo::alfworld
