#include "spo/alfworld_problem.hpp"

#include <algorithm>
#include <set>

namespace spo::alfworld {
namespace {

// Real games have some 200; the bound keeps a hostile file from asking for gigabytes.
constexpr std::size_t max_entities = 2048;

constexpr std::array<Signature, static_cast<std::size_t>(Predicate::count)> signatures = {{
    {"atlocation", {Kind::agent, Kind::location}, 2},
    {"receptacleatlocation", {Kind::receptacle, Kind::location}, 2},
    {"objectatlocation", {Kind::object, Kind::location}, 2},
    {"openable", {Kind::receptacle}, 1},
    {"opened", {Kind::receptacle}, 1},
    {"inreceptacle", {Kind::object, Kind::receptacle}, 2},
    {"isreceptacleobject", {Kind::object}, 1},
    {"inreceptacleobject", {Kind::object, Kind::object}, 2},
    {"isreceptacleobjectfull", {Kind::object}, 1},
    {"wasinreceptacle", {Kind::object, Kind::receptacle}, 2},
    {"checked", {Kind::any}, 1},  // declared for receptacles, but actions mark anything with it
    {"examined", {Kind::location}, 1},
    {"receptacletype", {Kind::receptacle, Kind::rtype}, 2},
    {"cancontain", {Kind::rtype, Kind::otype}, 2},
    {"objecttype", {Kind::object, Kind::otype}, 2},
    {"holds", {Kind::agent, Kind::object}, 2},
    {"holdsany", {Kind::agent}, 1},
    {"holdsanyreceptacleobject", {Kind::agent}, 1},
    {"full", {Kind::receptacle}, 1},
    {"isclean", {Kind::object}, 1},
    {"cleanable", {Kind::object}, 1},
    {"ishot", {Kind::object}, 1},
    {"heatable", {Kind::object}, 1},
    {"iscool", {Kind::object}, 1},
    {"coolable", {Kind::object}, 1},
    {"pickupable", {Kind::object}, 1},
    {"moveable", {Kind::object}, 1},
    {"toggleable", {Kind::object}, 1},
    {"ison", {Kind::object}, 1},
    {"istoggled", {Kind::object}, 1},
    {"sliceable", {Kind::object}, 1},
    {"issliced", {Kind::object}, 1},
}};

constexpr std::array<std::string_view, 6> kind_names = {"agent",  "location", "receptacle",
                                                        "object", "rtype",    "otype"};

struct RawFact {
  Predicate predicate;
  std::vector<const Sexp*> arguments;
};

class ProblemReader {
 public:
  ProblemReader(std::string_view text, const std::string& where)
      : where_(where), root_(parse_sexp(text, where)) {}

  Problem read() {
    if (root_.head() != "define") fail_pddl(where_, root_.line, "expected '(define (problem NAME) ...)'");
    declare(section(":objects"));
    const Sexp& init = section(":init");
    for (std::size_t i = 1; i < init.items.size(); ++i) read_fact(init.items[i]);
    make_entities();
    for (const RawFact& raw : raw_facts_) {
      Fact fact{raw.predicate};
      fact.first = entity(*raw.arguments[0]);
      if (raw.arguments.size() > 1) fact.second = entity(*raw.arguments[1]);
      problem_.facts.push_back(fact);
    }
    std::sort(problem_.facts.begin(), problem_.facts.end());
    problem_.facts.erase(std::unique(problem_.facts.begin(), problem_.facts.end()), problem_.facts.end());
    const Sexp& goal = section(":goal");
    if (goal.items.size() != 2) fail_pddl(where_, goal.line, "the goal must be one formula");
    problem_.goal = goal.items[1];
    check_header();
    return std::move(problem_);
  }

 private:
  const Sexp& section(std::string_view name) const {
    const Sexp* found = nullptr;
    for (const Sexp& item : root_.items) {
      if (item.head() != name) continue;
      if (found) fail_pddl(where_, item.line, "a second section " + quoted(name));
      found = &item;
    }
    if (!found) fail_pddl(where_, root_.line, "the section " + quoted(name) + " is missing");
    return *found;
  }

  void check_header() const {
    for (std::size_t i = 1; i < root_.items.size(); ++i) {
      const Sexp& item = root_.items[i];
      const std::string_view head = item.head();
      if (head == ":domain") {
        if (item.items.size() != 2 || item.items[1].symbol != "alfred")
          fail_pddl(where_, item.line, "the problem must be of the domain 'alfred'");
      } else if (head != "problem" && head != ":objects" && head != ":init" && head != ":goal" &&
                 head != ":metric" && head != ":requirements") {
        fail_pddl(where_, item.line, "unknown section " + quoted(head));
      }
    }
    section(":domain");
  }

  void declare(const Sexp& objects) {
    for (const auto& [id, type] : parse_typed_list(objects.items, 1, where_, objects.line)) {
      const Kind kind = kind_called(type);
      if (kind == Kind::any)
        fail_pddl(where_, objects.line, quoted(id) + " has the unknown type " + quoted(type));
      const auto [at, fresh] = problem_.declared.emplace(id, kind);
      if (!fresh && at->second != kind)
        fail_pddl(where_, objects.line, quoted(id) + " is declared with two types");
    }
  }

  void read_fact(const Sexp& item) {
    const std::string_view name = item.head();
    if (name == "=") return;  // costs and distances, which no rule reads
    const Predicate predicate = predicate_called(name);
    if (predicate == Predicate::count) fail_pddl(where_, item.line, "unknown predicate " + quoted(name));
    const Signature& form = signature(predicate);
    if (item.items.size() != static_cast<std::size_t>(form.arity) + 1)
      fail_pddl(where_, item.line,
                quoted(name) + " takes " + std::to_string(form.arity) + " arguments, got " +
                    std::to_string(item.items.size() - 1));
    RawFact raw{predicate, {}};
    for (int i = 0; i < form.arity; ++i) {
      const Sexp& argument = item.items[static_cast<std::size_t>(i) + 1];
      const auto at = problem_.declared.find(argument.symbol);
      if (at == problem_.declared.end())
        fail_pddl(where_, argument.line, quoted(argument.symbol) + " is not declared among the objects");
      const Kind expected = form.kinds[static_cast<std::size_t>(i)];
      if (expected != Kind::any && at->second != expected)
        fail_pddl(where_, argument.line,
                  quoted(argument.symbol) + " as argument " + std::to_string(i + 1) + " of " + quoted(name) +
                      " is not of the type " + std::string(kind_names[static_cast<std::size_t>(expected)]));
      raw.arguments.push_back(&argument);
      occurring_.insert(argument.symbol);
    }
    raw_facts_.push_back(std::move(raw));
  }

  void make_entities() {
    if (occurring_.size() > max_entities)
      fail_pddl(where_, root_.line,
                std::to_string(occurring_.size()) + " ids occur in facts; at most " +
                    std::to_string(max_entities) + " are supported");
    std::array<Index, kind_names.size()> counts{};
    std::map<std::string, int> numbers;
    for (const std::string_view id : occurring_) {
      const Kind kind = problem_.declared.find(id)->second;
      problem_.entities.push_back(
          {std::string(id), std::string(id), kind, counts[static_cast<std::size_t>(kind)]++});
      if (const std::string base = base_name(problem_.entities.back()); !base.empty()) ++numbers[base];
    }
    // One counter a name; ids in sorted order get descending numbers.
    for (Entity& item : problem_.entities)
      if (const std::string base = base_name(item); !base.empty())
        item.name = base + " " + std::to_string(numbers[base]--);
  }

  // "drawer" for "drawer_bar_...", "sinkbasin" for "sink_bar_..._bar_sinkbasin", "" for what texts never
  // name.
  std::string base_name(const Entity& item) const {
    const std::size_t end = item.id.find("_bar_");
    if (end == std::string::npos || end == 0) {
      if (item.kind == Kind::object || item.kind == Kind::receptacle)
        fail_pddl(where_, root_.line, quoted(item.id) + " is not an ALFWorld id (NAME_bar_...)");
      return "";
    }
    std::string base = item.id.substr(0, end);
    if (!std::all_of(base.begin(), base.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }))
      fail_pddl(where_, root_.line, "the name of " + quoted(item.id) + " is more than letters and digits");
    if (item.id.find("basin") != std::string::npos) base += "basin";
    return base;
  }

  Index entity(const Sexp& argument) const { return static_cast<Index>(problem_.find(argument.symbol)); }

  const std::string& where_;
  Sexp root_;
  Problem problem_;
  std::vector<RawFact> raw_facts_;
  std::set<std::string_view> occurring_;
};

}  // namespace

const Signature& signature(Predicate predicate) { return signatures[static_cast<std::size_t>(predicate)]; }

Predicate predicate_called(std::string_view name) {
  const auto at =
      std::find_if(signatures.begin(), signatures.end(), [&](const Signature& s) { return s.name == name; });
  return static_cast<Predicate>(at - signatures.begin());
}

Kind kind_called(std::string_view type) {
  const auto at = std::find(kind_names.begin(), kind_names.end(), type);
  return at == kind_names.end() ? Kind::any : static_cast<Kind>(at - kind_names.begin());
}

int Problem::find(std::string_view id) const {
  const auto at = std::lower_bound(entities.begin(), entities.end(), id,
                                   [](const Entity& e, std::string_view key) { return e.id < key; });
  return at != entities.end() && at->id == id ? static_cast<int>(at - entities.begin()) : -1;
}

Problem read_problem(std::string_view text, const std::string& where) {
  return ProblemReader(text, where).read();
}

}  // namespace spo::alfworld
