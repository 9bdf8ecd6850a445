#include "spo/pddl.hpp"

namespace spo {
namespace {

constexpr int max_depth = 64;

class SexpReader {
 public:
  SexpReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Sexp document() {
    skip_blank();
    if (at_ >= text_.size() || text_[at_] != '(') fail_pddl(where_, line_, "expected '(define ...)'");
    Sexp root = list(0);
    skip_blank();
    if (at_ < text_.size()) fail_pddl(where_, line_, "text after the closing parenthesis of the definition");
    return root;
  }

 private:
  static bool blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
  }

  void skip_blank() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == ';') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        if (at_ >= text_.size()) return;
      }
      if (text_[at_] == '\n') ++line_;
      else if (!blank(text_[at_])) return;
    }
  }

  Sexp list(int depth) {
    if (depth > max_depth)
      fail_pddl(where_, line_, "nested deeper than " + std::to_string(max_depth) + " levels");
    Sexp out;
    out.line = line_;
    ++at_;  // the opening parenthesis
    while (true) {
      skip_blank();
      if (at_ >= text_.size()) fail_pddl(where_, out.line, "the parenthesis opened here is never closed");
      if (text_[at_] == ')') return ++at_, out;
      out.items.push_back(text_[at_] == '(' ? list(depth + 1) : symbol());
    }
  }

  Sexp symbol() {
    Sexp out;
    out.line = line_;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (blank(c) || c == '(' || c == ')' || c == ';') break;
      if (c == '?' && !out.symbol.empty()) break;  // the public planner separates "?x?y" too
      if (c < ' ' || c > '~') fail_pddl(where_, line_, "a character that is not printable ASCII");
      out.symbol += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return out;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

void fail_pddl(const std::string& where, int line, const std::string& what) {
  throw ParseError(where + ", line " + std::to_string(line) + ": " + what);
}

Sexp parse_sexp(std::string_view text, const std::string& where) {
  return SexpReader(text, where).document();
}

std::vector<std::pair<std::string, std::string>> parse_typed_list(const std::vector<Sexp>& items,
                                                                  std::size_t first, const std::string& where,
                                                                  int line) {
  std::vector<std::pair<std::string, std::string>> out;
  std::size_t untyped = 0;
  for (std::size_t i = first; i < items.size(); ++i) {
    if (items[i].is_list()) fail_pddl(where, items[i].line, "expected a name or '-', found a list");
    if (items[i].symbol != "-") {
      out.emplace_back(items[i].symbol, "");
      continue;
    }
    if (i + 1 >= items.size() || items[i + 1].is_list())
      fail_pddl(where, items[i].line, "'-' needs a type after it");
    if (untyped == out.size()) fail_pddl(where, items[i].line, "'-' needs a name before it");
    for (++i; untyped < out.size(); ++untyped) out[untyped].second = items[i].symbol;
  }
  if (untyped < out.size()) fail_pddl(where, line, quoted(out[untyped].first) + " has no type");
  return out;
}

}  // namespace spo
