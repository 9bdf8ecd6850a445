#include <map>
#include <utility>
#include <vector>

#include "spo/alfworld_dialect.hpp"
#include "spo/json.hpp"

namespace spo::alfworld {
namespace {

constexpr std::string_view task_opening = "Your task is to: ";

struct ActionSpeech {
  std::string command_template, feedback;
};

// (condition without white space, sentence), in the order in which they are tried.
using Alternatives = std::vector<std::pair<std::string, std::string>>;

struct Grammar {
  std::map<std::string, ActionSpeech> actions;  // by lower-cased name
  std::map<std::string, Alternatives> rules;
};

// Reads TextWorld's `.twl2`: `grammar :: """json""";` and `action NAME { template :: "..."; ... }`.
class GrammarReader {
 public:
  GrammarReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Grammar document() {
    while (skip_blank(), at_ < text_.size()) {
      const std::string keyword = name();
      if (keyword == "grammar") {
        rules();
      } else if (keyword == "action") {
        action();
      } else {
        fail("expected 'grammar' or 'action', found " + quoted(keyword));
      }
    }
    return std::move(grammar_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ParseError(where_ + ", line " + std::to_string(line_of(text_, at_)) + ": " + what);
  }

  void skip_blank() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      } else if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  bool accept(std::string_view token) {
    skip_blank();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail("expected " + quoted(token));
  }

  std::string name() {
    skip_blank();
    const std::size_t start = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool part = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                        c == '_' || c == '-' || c == '/';
      if (!part) break;
      ++at_;
    }
    if (at_ == start) fail("expected a name");
    return std::string(text_.substr(start, at_ - start));
  }

  std::string_view delimited(std::string_view quote) {
    expect(quote);
    const std::size_t start = at_, end = text_.find(quote, start);
    if (end == std::string_view::npos) fail("a string has no end");
    at_ = end + quote.size();
    return text_.substr(start, end - start);
  }

  void action() {
    std::string action_name = name();
    for (char& c : action_name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    ActionSpeech& speech = grammar_.actions[action_name];
    expect("{");
    while (!accept("}")) {
      const std::string key = name();
      if (key == "grammar") {
        rules();
        continue;
      }
      expect("::");
      if (key == "template") speech.command_template = delimited("\"");
      else if (key == "feedback") speech.feedback = delimited("\"");
      else fail("unknown part " + quoted(key) + " of an action");
      expect(";");
    }
  }

  // A rule that is given again replaces the former one, as in TextWorld.
  void rules() {
    expect("::");
    const int line = line_of(text_, at_);
    const std::string_view code = delimited("\"\"\"");
    const Json json = parse_json(code, where_ + ", rules from line " + std::to_string(line));
    const auto* members = json.object();
    if (!members) fail("the rules must be a JSON object");
    for (const auto& [rule, alternatives] : *members) {
      const auto* list = alternatives.array();
      if (!list) fail("the rule " + quoted(rule) + " must be a list");
      Alternatives out;
      for (const Json& alternative : *list) {
        const Json* condition = alternative.find("condition");
        const Json* rhs = alternative.find("rhs");
        if (!rhs || !rhs->string() || (condition && !condition->string()))
          fail("the rule " + quoted(rule) + " needs a text 'rhs' and, if at all, a text 'condition'");
        out.emplace_back(condition ? without_space(*condition->string()) : "", *rhs->string());
      }
      grammar_.rules[rule] = std::move(out);
    }
    expect(";");
  }

  static std::string without_space(const std::string& text) {
    std::string out;
    for (char c : text)
      if (c != ' ' && c != '\n' && c != '\t') out += c;
    return out;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
  Grammar grammar_;
};

const Grammar& supported() {
  static const Grammar grammar = GrammarReader(reference_grammar, "the supported grammar").document();
  return grammar;
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw ParseError(where + ": " + what + "; this is not the supported ALFWorld grammar (alfworld >= 0.4.0)");
}

std::string task_sentence(const Grammar& grammar, const std::string& where) {
  const auto rule = grammar.rules.find("task");
  if (rule == grammar.rules.end()) refuse(where, "the rule 'task' is missing");
  if (rule->second.size() != 1 || !rule->second[0].first.empty())
    refuse(where, "the rule 'task' must be one sentence without a condition");
  const std::string& sentence = rule->second[0].second;
  if (!sentence.starts_with(task_opening))
    refuse(where,
           "the task reads " + quoted(sentence) + ", expected it to open with " + quoted(task_opening));
  if (sentence.find_first_of("#{}[]|<>;\"") != std::string::npos)
    refuse(where, "the task " + quoted(sentence) + " has characters that the grammar would interpret");
  return sentence.substr(task_opening.size());
}

}  // namespace

std::string check_grammar(std::string_view text, const std::string& where) {
  const Grammar given = GrammarReader(text, where).document();
  for (const auto& [name, speech] : supported().actions) {
    const auto at = given.actions.find(name);
    if (at == given.actions.end()) refuse(where, "the action " + quoted(name) + " has no template");
    if (at->second.command_template != speech.command_template)
      refuse(where, "the action " + quoted(name) + " has the template " +
                        quoted(at->second.command_template) + ", expected " +
                        quoted(speech.command_template));
    if (at->second.feedback != speech.feedback)
      refuse(where, "the action " + quoted(name) + " has the feedback " + quoted(at->second.feedback) +
                        ", expected " + quoted(speech.feedback));
  }
  for (const auto& [name, alternatives] : supported().rules) {
    if (name == "task") continue;
    const auto at = given.rules.find(name);
    if (at == given.rules.end()) refuse(where, "the rule " + quoted(name) + " is missing");
    if (at->second != alternatives) refuse(where, "the rule " + quoted(name) + " gives other sentences");
  }
  return task_sentence(given, where);
}

const std::string& help_text() {
  // TextWorld drops the newline that opens the feedback.
  static const std::string text = supported().actions.at("help").feedback.substr(1);
  return text;
}

}  // namespace spo::alfworld
