#include <algorithm>
#include <map>

#include "spo/alfworld_problem.hpp"

namespace spo::alfworld {
namespace {

constexpr std::array<std::string_view, 6> task_names = {
    "pick_and_place_simple",         "look_at_obj_in_light",          "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep", "pick_two_obj_and_place"};

struct Variable {
  Kind kind;
  std::vector<Predicate> conditions;  // facts of one argument
  int type = -1;                      // entity, from objectType or receptacleType
  bool used = false;
};

struct Relation {
  Predicate predicate;
  int first, second;  // variables
};

// The goals of ALFWorld are conjunctions under existential quantifiers. The reader takes one apart into
// variables and what is asked of each, then recognises the task.
class GoalReader {
 public:
  GoalReader(const Problem& problem, const std::string& where) : problem_(problem), where_(where) {}

  Goal read() {
    conjunct(problem_.goal, {});
    Goal goal;
    if (take(Predicate::holds)) light(goal);
    else place(goal);
    if (!relations_.empty())
      refuse("the goal relates things by " + quoted(signature(relations_[0].predicate).name));
    for (const Variable& variable : variables_)
      if (!variable.used && !(variable.conditions.empty() && variable.type < 0))
        refuse("the goal asks something of a thing that its task does not involve");
    collect(goal);
    return goal;
  }

 private:
  using Scope = std::map<std::string, int, std::less<>>;

  [[noreturn]] void refuse(const std::string& what) const {
    fail_pddl(where_, problem_.goal.line, what + "; supported are the goals of ALFWorld's six task types");
  }

  void conjunct(const Sexp& sexp, const Scope& scope) {
    const std::string_view head = sexp.head();
    if (head == "and") {
      for (std::size_t i = 1; i < sexp.items.size(); ++i) conjunct(sexp.items[i], scope);
    } else if (head == "exists") {
      if (sexp.items.size() != 3) fail_pddl(where_, sexp.line, "'exists' needs variables and one formula");
      Scope inner = scope;
      for (const auto& [name, type] : parse_typed_list(sexp.items[1].items, 0, where_, sexp.line)) {
        const Kind kind = kind_called(type);
        if (kind == Kind::any)
          fail_pddl(where_, sexp.line,
                    "the variable " + quoted(name) + " has the unknown type " + quoted(type));
        inner[name] = static_cast<int>(variables_.size());
        variables_.push_back({kind, {}});
      }
      conjunct(sexp.items[2], inner);
    } else if (head == "not" && sexp.items.size() == 2 && sexp.items[1].head() == "=" &&
               sexp.items[1].items.size() == 3) {
      different_.emplace_back(variable(sexp.items[1].items[1], scope),
                              variable(sexp.items[1].items[2], scope));
    } else if (head == "or" || head == "not" || head == "forall" || head == "imply" || head.empty()) {
      refuse("the goal uses " + (head.empty() ? std::string("an empty formula") : quoted(head)));
    } else {
      atom(sexp, scope);
    }
  }

  int variable(const Sexp& term, const Scope& scope) const {
    const auto at = scope.find(term.symbol);
    if (at == scope.end())
      fail_pddl(where_, term.line, quoted(term.symbol) + " is not a variable of the goal");
    return at->second;
  }

  int type_entity(const Sexp& term, Kind kind) const {
    const auto declared = problem_.declared.find(term.symbol);
    if (declared == problem_.declared.end())
      fail_pddl(where_, term.line, quoted(term.symbol) + " is not declared among the objects");
    if (declared->second != kind)
      fail_pddl(where_, term.line, quoted(term.symbol) + " is not a type of that kind of thing");
    const int entity = problem_.find(term.symbol);
    if (entity < 0)
      fail_pddl(where_, term.line, quoted(term.symbol) + " occurs in no fact: the goal can never hold");
    return entity;
  }

  void atom(const Sexp& sexp, const Scope& scope) {
    const Predicate predicate = predicate_called(sexp.head());
    if (predicate == Predicate::count)
      fail_pddl(where_, sexp.line, "unknown predicate " + quoted(sexp.head()) + " in the goal");
    const Signature& form = signature(predicate);
    if (sexp.items.size() != static_cast<std::size_t>(form.arity) + 1)
      fail_pddl(where_, sexp.line,
                quoted(form.name) + " takes " + std::to_string(form.arity) + " arguments, got " +
                    std::to_string(sexp.items.size() - 1));
    const int first = argument(sexp, 1, scope, form);
    if (form.arity == 1) {
      auto& conditions = variables_[static_cast<std::size_t>(first)].conditions;
      if (std::find(conditions.begin(), conditions.end(), predicate) == conditions.end())
        conditions.push_back(predicate);
    } else if (predicate == Predicate::object_type || predicate == Predicate::receptacle_type) {
      int& type = variables_[static_cast<std::size_t>(first)].type;
      const int asked = type_entity(sexp.items[2], form.kinds[1]);
      if (type >= 0 && type != asked) refuse("the goal asks for a thing of two types");
      type = asked;
    } else {
      relations_.push_back({predicate, first, argument(sexp, 2, scope, form)});
    }
  }

  int argument(const Sexp& sexp, std::size_t position, const Scope& scope, const Signature& form) const {
    const int index = variable(sexp.items[position], scope);
    const Kind expected = form.kinds[position - 1];
    if (expected != Kind::any && variables_[static_cast<std::size_t>(index)].kind != expected)
      fail_pddl(where_, sexp.line,
                "the variable " + quoted(sexp.items[position].symbol) + " has the wrong type for " +
                    quoted(form.name));
    return index;
  }

  // Removes the relation of that predicate (the first, if there are several) into `taken_`.
  bool take(Predicate predicate) {
    const auto at = std::find_if(relations_.begin(), relations_.end(),
                                 [&](const Relation& r) { return r.predicate == predicate; });
    if (at == relations_.end()) return false;
    taken_ = *at;
    relations_.erase(at);
    return true;
  }

  Variable& use(int index) {
    Variable& variable = variables_[static_cast<std::size_t>(index)];
    variable.used = true;
    return variable;
  }

  Index type_of(const Variable& variable, const char* what) const {
    if (variable.type < 0) refuse(std::string("the goal gives no type for the ") + what);
    return static_cast<Index>(variable.type);
  }

  void light(Goal& goal) {
    goal.task = Task::light;
    const int object_variable = taken_.second;
    const Variable& object = use(object_variable);
    goal.object_type = type_of(object, "object");
    goal.conditions = object.conditions;
    use(taken_.first);
    if (!take(Predicate::in_receptacle) || taken_.first == object_variable)
      refuse("the goal asks for an object in hand, but for no lamp");
    const Relation lamp_in = taken_;
    bool here = take(Predicate::receptacle_at_location) && taken_.first == lamp_in.second;
    const int location = taken_.second;
    here = here && take(Predicate::at_location) && taken_.second == location;
    if (!here) refuse("the goal does not ask the agent to be where the lamp is");
    use(location);
    use(taken_.first);
    const Variable& lamp = use(lamp_in.first);
    if (!use(lamp_in.second).conditions.empty() || use(lamp_in.second).type >= 0)
      refuse("the goal asks something of the lamp's receptacle");
    goal.lamp_type = type_of(lamp, "lamp");
    goal.lamp_conditions = lamp.conditions;
    if (!different_.empty()) refuse("the goal asks for two distinct things");
    if (std::find(lamp.conditions.begin(), lamp.conditions.end(), Predicate::is_toggled) ==
        lamp.conditions.end())
      refuse("the goal does not ask for the lamp to be switched on");
  }

  void place(Goal& goal) {
    if (!take(Predicate::in_receptacle))
      refuse("the goal asks neither for an object in a receptacle nor for one in hand");
    const Relation first = taken_;
    const Variable& object = use(first.first);
    const Variable& receptacle = use(first.second);
    goal.object_type = type_of(object, "object");
    goal.receptacle_type = type_of(receptacle, "receptacle");
    goal.conditions = object.conditions;
    if (!receptacle.conditions.empty()) refuse("the goal asks something of the receptacle");
    if (take(Predicate::in_receptacle)) {
      const Variable& second = use(taken_.first);
      const std::pair<int, int> both{std::min(first.first, taken_.first),
                                     std::max(first.first, taken_.first)};
      const bool distinct =
          different_.size() == 1 && std::minmax(different_[0].first, different_[0].second) ==
                                        std::pair<const int&, const int&>(both.first, both.second);
      if (taken_.second != first.second || second.type != object.type ||
          sorted(second.conditions) != sorted(object.conditions) || !distinct)
        refuse(
            "the goal asks for two objects, but not for two distinct ones of one type and condition in one "
            "receptacle");
      goal.task = Task::two;
      return;
    }
    if (!different_.empty()) refuse("the goal asks for two distinct things");
    const auto asks = [&](Predicate p) {
      return std::find(goal.conditions.begin(), goal.conditions.end(), p) != goal.conditions.end();
    };
    const bool clean = asks(Predicate::is_clean), hot = asks(Predicate::is_hot),
               cool = asks(Predicate::is_cool);
    if (clean + hot + cool > 1) refuse("the goal asks for more than one of clean, hot and cool");
    goal.task = clean ? Task::clean : hot ? Task::heat : cool ? Task::cool : Task::simple;
  }

  static std::vector<Predicate> sorted(std::vector<Predicate> predicates) {
    std::sort(predicates.begin(), predicates.end());
    return predicates;
  }

  // The slots of the things that have the goal's types.
  void collect(Goal& goal) const {
    const bool light = goal.task == Task::light;
    for (const Fact& fact : problem_.facts) {
      const Index slot = problem_.entities[fact.first].slot;
      if (fact.predicate == Predicate::object_type) {
        if (fact.second == goal.object_type) goal.objects.push_back(slot);
        if (light && fact.second == goal.lamp_type) goal.lamps.push_back(slot);
      } else if (fact.predicate == Predicate::receptacle_type && !light &&
                 fact.second == goal.receptacle_type) {
        goal.receptacles.push_back(slot);
      }
    }
  }

  const Problem& problem_;
  const std::string& where_;
  std::vector<Variable> variables_;
  std::vector<Relation> relations_;
  std::vector<std::pair<int, int>> different_;
  Relation taken_{};
};

}  // namespace

std::string_view task_type_name(Task task) { return task_names[static_cast<std::size_t>(task)]; }

Goal read_goal(const Problem& problem, const std::string& where) { return GoalReader(problem, where).read(); }

}  // namespace spo::alfworld
