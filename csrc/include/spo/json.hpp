#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "spo/parse_error.hpp"

namespace spo {

// A JSON value. Numbers are kept as their text: nothing here computes with them.
struct Json {
  struct Number {
    std::string text;
  };
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  std::variant<std::nullptr_t, bool, Number, std::string, Array, Object> value;

  const std::string* string() const { return std::get_if<std::string>(&value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const Object* object() const { return std::get_if<Object>(&value); }
  // The member of that name, or nullptr.
  const Json* find(std::string_view name) const;
};

// Strict RFC 8259: valid UTF-8, no duplicate names, at most 64 levels deep. `where` opens every message.
Json parse_json(std::string_view text, const std::string& where);

}  // namespace spo
