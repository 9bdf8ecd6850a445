#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "spo/alfworld_dialect.hpp"
#include "spo/hash.hpp"
#include "spo/pddl.hpp"

namespace spo::alfworld {
namespace {

struct ActionForm {
  std::string parameters, precondition = "(and)", effect = "(and)";
};

// What a domain means, in a form that equal domains share.
struct DomainForm {
  std::string name;
  std::set<std::string> types;
  std::map<std::string, std::string> predicates;
  std::map<std::string, ActionForm> actions;
};

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " ") + part;
  return out;
}

std::vector<std::string> typed_names(const std::vector<Sexp>& items, std::size_t first,
                                     const std::string& where, int line) {
  std::vector<std::string> out;
  for (const auto& [name, type] : parse_typed_list(items, first, where, line))
    out.push_back(name + "-" + type);
  return out;
}

class Canonical {
 public:
  explicit Canonical(const std::string& where) : where_(where) {}

  std::string formula(const Sexp& sexp) const {
    if (!sexp.is_list()) return sexp.symbol;
    if (sexp.items.empty()) return "(and)";
    const std::string_view head = sexp.head();
    if (head == "and" || head == "or") {
      std::set<std::string> parts;
      gather(sexp, head, parts);
      if (parts.size() == 1) return *parts.begin();
      return "(" + std::string(head) + (parts.empty() ? "" : " ") + joined({parts.begin(), parts.end()}) +
             ")";
    }
    if ((head == "exists" || head == "forall") && sexp.items.size() == 3) {
      std::vector<std::string> variables = typed_names(sexp.items[1].items, 0, where_, sexp.line);
      std::sort(variables.begin(), variables.end());
      return "(" + std::string(head) + " (" + joined(variables) + ") " + formula(sexp.items[2]) + ")";
    }
    std::vector<std::string> parts;
    for (const Sexp& item : sexp.items) parts.push_back(formula(item));
    return "(" + joined(parts) + ")";
  }

 private:
  // Nested conjunctions (or disjunctions) are one; order and repetition mean nothing.
  void gather(const Sexp& sexp, std::string_view head, std::set<std::string>& parts) const {
    for (std::size_t i = 1; i < sexp.items.size(); ++i) {
      const Sexp& item = sexp.items[i];
      if (item.head() == head) gather(item, head, parts);
      else if (const std::string part = formula(item); head != "and" || part != "(and)") parts.insert(part);
    }
  }

  const std::string& where_;
};

void read_action(const Sexp& section, const std::string& where, DomainForm& domain) {
  const auto& items = section.items;
  if (items.size() < 2 || items[1].is_list() || items.size() % 2 != 0)
    fail_pddl(where, section.line, "an action needs a name and keyword-value pairs");
  const auto [at, fresh] = domain.actions.try_emplace(items[1].symbol);
  if (!fresh) fail_pddl(where, section.line, "the action " + quoted(items[1].symbol) + " is defined twice");
  ActionForm& action = at->second;
  const Canonical canonical(where);
  for (std::size_t i = 2; i < items.size(); i += 2) {
    const std::string& key = items[i].symbol;
    if (key == ":parameters")
      action.parameters = joined(typed_names(items[i + 1].items, 0, where, items[i].line));
    else if (key == ":precondition") action.precondition = canonical.formula(items[i + 1]);
    else if (key == ":effect") action.effect = canonical.formula(items[i + 1]);
    else fail_pddl(where, items[i].line, "unknown part " + quoted(key) + " of an action");
  }
}

DomainForm read_domain(std::string_view text, const std::string& where) {
  const Sexp root = parse_sexp(text, where);
  if (root.head() != "define" || root.items.size() < 2 || root.items[1].head() != "domain" ||
      root.items[1].items.size() != 2)
    fail_pddl(where, root.line, "expected '(define (domain NAME) ...)'");
  DomainForm domain;
  domain.name = root.items[1].items[1].symbol;
  for (std::size_t i = 2; i < root.items.size(); ++i) {
    const Sexp& section = root.items[i];
    const std::string_view head = section.head();
    if (head == ":types") {
      for (std::size_t j = 1; j < section.items.size(); ++j) domain.types.insert(section.items[j].symbol);
    } else if (head == ":predicates") {
      for (std::size_t j = 1; j < section.items.size(); ++j) {
        std::vector<std::string> types;
        for (const auto& [name, type] :
             parse_typed_list(section.items[j].items, 1, where, section.items[j].line))
          types.push_back(type);
        domain.predicates[std::string(section.items[j].head())] = joined(types);
      }
    } else if (head == ":action") {
      read_action(section, where, domain);
    } else if (head != ":requirements" && head != ":functions") {
      fail_pddl(where, section.line,
                "the section " + quoted(head) + " is not part of the supported ALFWorld domain");
    }
  }
  return domain;
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw ParseError(where + ": " + what + "; this is not the supported ALFWorld domain (alfworld >= 0.4.0)");
}

void compare(const DomainForm& given, const DomainForm& supported, const std::string& where) {
  if (given.name != supported.name)
    refuse(where, "the domain is called " + quoted(given.name) + ", expected " + quoted(supported.name));
  if (given.types != supported.types) refuse(where, "the types differ");
  for (const auto& [name, types] : supported.predicates) {
    const auto at = given.predicates.find(name);
    if (at == given.predicates.end()) refuse(where, "the predicate " + quoted(name) + " is missing");
    if (at->second != types)
      refuse(where, "the predicate " + quoted(name) + " has the argument types (" + at->second +
                        "), expected (" + types + ")");
  }
  for (const auto& [name, action] : given.actions)
    if (!supported.actions.contains(name)) refuse(where, "the action " + quoted(name) + " is unknown");
  for (const auto& [name, action] : supported.actions) {
    const auto at = given.actions.find(name);
    if (at == given.actions.end()) refuse(where, "the action " + quoted(name) + " is missing");
    const auto differs = [&](const char* part) {
      refuse(where, "the action " + quoted(name) + " has another " + part);
    };
    if (at->second.parameters != action.parameters) differs("parameter list");
    if (at->second.precondition != action.precondition) differs("precondition");
    if (at->second.effect != action.effect) differs("effect");
  }
}

}  // namespace

void check_domain(std::string_view domain, const std::string& where) {
  static const DomainForm supported = read_domain(reference_domain, "the supported domain");
  // Games share their domain text: remember the last one that passed.
  static std::mutex mutex;
  static Hash128 accepted{};
  const Hash128 digest = hash128(domain);
  {
    const std::lock_guard lock(mutex);
    if (digest == accepted) return;
  }
  compare(read_domain(domain, where), supported, where);
  const std::lock_guard lock(mutex);
  accepted = digest;
}

}  // namespace spo::alfworld
