#include "spo/json.hpp"

#include <algorithm>
#include <cstdint>

namespace spo {
namespace {

constexpr int max_depth = 64;

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Json document() {
    Json json = value(0);
    skip_space();
    if (at_ < text_.size()) fail("text after the end of the JSON value");
    return json;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ParseError(where_ + ", line " + std::to_string(line_of(text_, at_)) + ": " + what);
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  // The next character after white space, which is consumed; the end of the text is an error.
  char peek() {
    skip_space();
    if (at_ >= text_.size()) fail("the JSON ends too early");
    return text_[at_];
  }

  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(std::string("expected '") + c + "', found " + quoted(text_.substr(at_, 1)));
  }

  bool accept_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json value(int depth) {
    if (depth > max_depth) fail("nested deeper than " + std::to_string(max_depth) + " levels");
    switch (peek()) {
      case '{': return object(depth);
      case '[': return array(depth);
      case '"': return {string()};
      default: break;
    }
    if (accept_word("true")) return {true};
    if (accept_word("false")) return {false};
    if (accept_word("null")) return {nullptr};
    return number();
  }

  Json object(int depth) {
    expect('{');
    Json::Object members;
    if (accept('}')) return {std::move(members)};
    do {
      if (peek() != '"') fail("expected a member's name in double quotes");
      std::string name = string();
      expect(':');
      Json member = value(depth + 1);
      members.emplace_back(std::move(name), std::move(member));
    } while (accept(','));
    expect('}');
    refuse_duplicates(members);
    return {std::move(members)};
  }

  void refuse_duplicates(const Json::Object& members) const {
    std::vector<std::string_view> names;
    for (const auto& [name, member] : members) names.emplace_back(name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) fail("the name " + quoted(*twice) + " appears twice in one object");
  }

  Json array(int depth) {
    expect('[');
    Json::Array items;
    if (accept(']')) return {std::move(items)};
    do items.push_back(value(depth + 1));
    while (accept(','));
    expect(']');
    return {std::move(items)};
  }

  bool digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > start;
  }

  Json number() {
    const std::size_t start = at_;
    accept_word("-");
    const bool leading_zero = text_.substr(at_, 1) == "0";
    const std::size_t first = at_;
    if (!digits()) fail("expected a JSON value, found " + quoted(text_.substr(start, 12)));
    if (leading_zero && at_ > first + 1) fail("a number starts with 0");
    if (accept_word(".") && !digits()) fail("digits must follow the decimal point");
    if (accept_word("e") || accept_word("E")) {
      if (!accept_word("+")) accept_word("-");
      if (!digits()) fail("digits must follow the exponent");
    }
    return {Json::Number{std::string(text_.substr(start, at_ - start))}};
  }

  std::string string() {
    ++at_;  // the opening quote
    std::string out;
    while (true) {
      if (at_ >= text_.size()) fail("a string has no end");
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte == '"') return ++at_, out;
      if (byte < 0x20) fail("a control character in a string");
      if (byte == '\\') escape(out);
      else if (byte < 0x80) out += text_[at_++];
      else utf8(out);
    }
  }

  void escape(std::string& out) {
    if (at_ + 1 >= text_.size()) fail("a string has no end");
    const char c = text_[at_ + 1];
    at_ += 2;
    switch (c) {
      case '"':
      case '\\':
      case '/': out += c; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'n': out += '\n'; return;
      case 'r': out += '\r'; return;
      case 't': out += '\t'; return;
      case 'u': break;
      default: fail("unknown escape \\" + std::string(1, c >= ' ' && c <= '~' ? c : '?'));
    }
    std::uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00) {
      if (!accept_word("\\u")) fail("half of a surrogate pair");
      const std::uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      fail("half of a surrogate pair");
    }
    append_code(out, code);
  }

  std::uint32_t hex4() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      if (c >= '0' && c <= '9') code = code * 16 + static_cast<std::uint32_t>(c - '0');
      else if (c >= 'a' && c <= 'f') code = code * 16 + static_cast<std::uint32_t>(c - 'a' + 10);
      else if (c >= 'A' && c <= 'F') code = code * 16 + static_cast<std::uint32_t>(c - 'A' + 10);
      else fail("\\u needs four hexadecimal digits");
    }
    return code;
  }

  static void append_code(std::string& out, std::uint32_t code) {
    const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xC0 | (code >> 6));
      tail(0);
    } else if (code < 0x10000) {
      out += static_cast<char>(0xE0 | (code >> 12));
      tail(6), tail(0);
    } else {
      out += static_cast<char>(0xF0 | (code >> 18));
      tail(12), tail(6), tail(0);
    }
  }

  void utf8(std::string& out) {
    const auto lead = static_cast<unsigned char>(text_[at_]);
    const int size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    static constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    bool ok = lead >= 0xC2 && lead <= 0xF4 && at_ + static_cast<std::size_t>(size) <= text_.size();
    std::uint32_t code = lead & (0xFFu >> (size + 1));
    for (int i = 1; ok && i < size; ++i) {
      const auto byte = static_cast<unsigned char>(text_[at_ + static_cast<std::size_t>(i)]);
      ok = (byte & 0xC0) == 0x80;
      code = (code << 6) | (byte & 0x3F);
    }
    ok = ok && code >= smallest[size] && code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF);
    if (!ok) fail("invalid UTF-8");
    out.append(text_, at_, static_cast<std::size_t>(size));
    at_ += static_cast<std::size_t>(size);
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

}  // namespace

const Json* Json::find(std::string_view name) const {
  if (const Object* members = object())
    for (const auto& [key, member] : *members)
      if (key == name) return &member;
  return nullptr;
}

Json parse_json(std::string_view text, const std::string& where) {
  return JsonReader(text, where).document();
}

}  // namespace spo
