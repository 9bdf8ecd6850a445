#pragma once
#include <string>
#include <string_view>

#include "spo/parse_error.hpp"

// Which ALFWorld games the engine plays: those whose domain and grammar mean what the engine implements.
namespace spo::alfworld {

// The supported domain and grammar, as shipped in the Python package.
extern const std::string_view reference_domain;
extern const std::string_view reference_grammar;

// Throws ParseError, saying what differs, unless the domain's name, types, predicates and actions equal the
// supported ones. Layout, comments, the order of declarations and of conjuncts don't matter.
void check_domain(std::string_view domain, const std::string& where);

// Likewise for every template and sentence the engine says; returns the task's own sentence, without
// "Your task is to: ".
std::string check_grammar(std::string_view grammar, const std::string& where);

// The answer to "help".
const std::string& help_text();

}  // namespace spo::alfworld
