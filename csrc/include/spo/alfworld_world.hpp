#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spo/hash.hpp"
#include "spo/parse_error.hpp"

// One loaded ALFWorld game: everything that playing it does not change.
namespace spo::alfworld {

enum class Kind : std::uint8_t { agent, location, receptacle, object, rtype, otype, any };

enum class Predicate : std::uint8_t {
  at_location,
  receptacle_at_location,
  object_at_location,
  openable,
  opened,
  in_receptacle,
  is_receptacle_object,
  in_receptacle_object,
  is_receptacle_object_full,
  was_in_receptacle,
  checked,
  examined,
  receptacle_type,
  can_contain,
  object_type,
  holds,
  holds_any,
  holds_any_receptacle_object,
  full,
  is_clean,
  cleanable,
  is_hot,
  heatable,
  is_cool,
  coolable,
  pickupable,
  moveable,
  toggleable,
  is_on,
  is_toggled,
  sliceable,
  is_sliced,
  count
};

struct Signature {
  std::string_view name;
  std::array<Kind, 2> kinds;
  int arity;
};

const Signature& signature(Predicate predicate);
// Predicate::count if there is none of that name.
Predicate predicate_called(std::string_view name);

// An index into World::entities, or into World::objects and its siblings, by context.
using Index = std::uint16_t;

struct Fact {
  Predicate predicate;
  Index first = 0, second = 0;  // entities
  auto operator<=>(const Fact&) const = default;
};

struct Entity {
  std::string id;    // lower-cased
  std::string name;  // "drawer 3"; agents and types, which no sentence mentions, are called by their id
  Kind kind;
  Index slot;  // position among the entities of its kind
};

enum class Task : std::uint8_t { simple, light, clean, heat, cool, two };
// ALFWorld's name of the task type.
std::string_view task_type_name(Task task);

// What must hold: objects (one, or two distinct ones) with all `conditions` in one receptacle of a type; or,
// for Task::light, such an object in hand and a lamp, with its conditions, in a receptacle where the agent
// is.
struct Goal {
  Task task = Task::simple;
  Index object_type = 0, receptacle_type = 0, lamp_type = 0;  // entities; the last two as the task needs them
  std::vector<Predicate> conditions, lamp_conditions;
  std::vector<Index> objects, lamps;  // slots: those of the type
  std::vector<Index> receptacles;     // slots: those of the type
};

enum class Verb : std::uint8_t {
  look,
  inventory,
  help,
  examine_receptacle,
  examine_object,
  go_to,
  open,
  close,
  take,
  move,
  clean,
  heat,
  cool,
  use,
  slice,
  count
};

struct Command {
  Verb verb;
  Index object = 0;  // slot
  Index other = 0;   // slot: the receptacle, or the knife of "slice"
};

// Where each part of a running game lies in its vector of 64-bit words. The words from `key` on are the
// dynamic facts that the state key covers; bit sets have one bit an object unless noted.
struct Layout {
  std::size_t steps, checked, on, taken;  // checked: a bit an entity; taken: a row a receptacle
  std::size_t key, here, held, opened, clean, hot, cool, toggled, sliced, in, object_at, total;
  std::size_t
      row;  // words of one object bit set; `in` and `taken` have a row a receptacle, `object_at` a location
};

class World {
 public:
  // Parses and checks a game; every fault is a ParseError that opens with `where`.
  World(std::string_view domain, std::string_view grammar, std::string_view problem,
        const std::string& where);

  std::string task;  // the sentence
  Goal goal;
  Hash128 identity;                // equal for equal facts, goal and sentence
  std::vector<Entity> entities;    // sorted by id: texts list things in this order
  std::vector<Fact> static_facts;  // sorted; those that no action changes
  Index agent = 0;                 // entity

  // Entities by kind, and what is known of them by slot.
  std::vector<Index> objects, receptacles, locations;
  struct ObjectTraits {
    bool pickupable = false, cleanable = false, heatable = false, coolable = false, toggleable = false,
         sliceable = false, holds_objects = false, knife = false;
    std::vector<Index> inside;  // slots of the objects in it
  };
  struct ReceptacleTraits {
    bool openable = false, cleans = false, heats = false, cools = false;
    int location = -1;  // slot
  };
  std::vector<ObjectTraits> object_traits;
  std::vector<ReceptacleTraits> receptacle_traits;
  std::vector<std::vector<Index>> receptacles_at;  // by location

  const std::string& object_name(Index slot) const { return entities[objects[slot]].name; }
  const std::string& receptacle_name(Index slot) const { return entities[receptacles[slot]].name; }
  bool can_contain(Index receptacle, Index object) const {
    return can_contain_[receptacle * objects.size() + object];
  }
  bool is_static(const Fact& fact) const;

  // All commands that some state may allow, in plain string order.
  std::size_t command_count() const { return commands_.size(); }
  const Command& command(std::size_t index) const { return commands_[index]; }
  std::string_view command_text(std::size_t index) const {
    return std::string_view(command_texts_)
        .substr(command_starts_[index], command_starts_[index + 1] - command_starts_[index]);
  }
  // -1 if no state allows it.
  int find_command(std::string_view text) const;
  int find_command(Verb verb, Index object, Index other) const;

  Layout layout;
  std::vector<std::uint64_t> initial;  // the words of a game just reset

 private:
  friend class WorldBuilder;

  std::vector<bool> can_contain_;  // receptacle-major
  std::vector<Command> commands_;
  std::string command_texts_;
  std::vector<std::uint32_t> command_starts_;
  std::unordered_map<std::string_view, int> command_by_text_;
  std::array<std::vector<int>, static_cast<std::size_t>(Verb::count)> command_by_parts_;
};

inline bool test_bit(const std::uint64_t* words, std::size_t bit) {
  return words[bit / 64] >> (bit % 64) & 1;
}
inline void set_bit(std::uint64_t* words, std::size_t bit) {
  words[bit / 64] |= std::uint64_t{1} << (bit % 64);
}
inline void clear_bit(std::uint64_t* words, std::size_t bit) {
  words[bit / 64] &= ~(std::uint64_t{1} << (bit % 64));
}
template <class F>
void for_each_bit(const std::uint64_t* words, std::size_t count, F&& visit) {
  for (std::size_t i = 0; i < count; ++i)
    for (std::uint64_t rest = words[i]; rest != 0; rest &= rest - 1)
      visit(i * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
}
inline std::size_t words_for(std::size_t bits) { return (bits + 63) / 64; }

}  // namespace spo::alfworld
