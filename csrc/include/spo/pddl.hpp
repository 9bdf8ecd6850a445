#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spo/parse_error.hpp"

namespace spo {

// An s-expression of a PDDL text: a lower-cased symbol, or a list.
struct Sexp {
  std::string symbol;  // empty for a list
  std::vector<Sexp> items;
  int line = 0;

  bool is_list() const { return symbol.empty(); }
  // The symbol that opens the list, or "".
  std::string_view head() const {
    return !items.empty() ? std::string_view(items[0].symbol) : std::string_view();
  }
};

// Says what is wrong in which text ("problem of FILE") and on which line of it.
[[noreturn]] void fail_pddl(const std::string& where, int line, const std::string& what);

// Reads one s-expression: comments start with ';', PDDL ignores case, at most 64 levels deep.
Sexp parse_sexp(std::string_view text, const std::string& where);

// "a b - t c - u" as (a, t), (b, t), (c, u). Names without a type are an error.
std::vector<std::pair<std::string, std::string>> parse_typed_list(const std::vector<Sexp>& items,
                                                                  std::size_t first, const std::string& where,
                                                                  int line);

}  // namespace spo
