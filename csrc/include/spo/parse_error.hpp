#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace spo {

// A text that is not what it should be; the message says where. Python sees a ValueError.
class ParseError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

inline int line_of(std::string_view text, std::size_t position) {
  int line = 1;
  for (std::size_t i = 0; i < position && i < text.size(); ++i) line += text[i] == '\n';
  return line;
}

// For messages: the text in quotes, shortened and with control or non-ASCII bytes replaced.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string out = "'";
  for (char c : text.substr(0, longest)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > longest ? "...'" : "'");
}

}  // namespace spo
