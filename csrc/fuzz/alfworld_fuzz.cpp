// Feeds damaged games to the ALFWorld loader, and plays those that it accepts.
//
//   alfworld_fuzz RUNS SEED GAME_FILE...    replays the files, then RUNS mutations of them; deterministic
//
// With -DSPO_LIBFUZZER and -fsanitize=fuzzer it is a libFuzzer target instead. A fault shows as a sanitizer
// report or as an abort; a ParseError is what a damaged file should give.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "spo/alfworld_file.hpp"
#include "spo/alfworld_game.hpp"
#include "spo/json.hpp"

namespace {

namespace alf = spo::alfworld;
using Random = std::mt19937_64;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "alfworld_fuzz: %s\n", what);
  std::abort();
}

std::size_t below(Random& random, std::size_t bound) { return static_cast<std::size_t>(random() % bound); }

// Plays admissible and impossible commands, and checks what must hold of any game.
void play(const std::shared_ptr<const alf::World>& world, Random& random) {
  alf::Game game(world, 30);
  require(!game.reset().empty(), "an empty intro");
  std::vector<int> admissible;
  for (int step = 0; step < 40; ++step) {
    game.admissible(admissible);
    require(!admissible.empty(), "nothing is admissible");
    require(std::is_sorted(admissible.begin(), admissible.end()), "the admissible commands are not sorted");
    const bool any = random() % 4 == 0;
    const std::size_t index = any ? below(random, world->command_count())
                                  : static_cast<std::size_t>(admissible[below(random, admissible.size())]);
    const bool allowed = std::binary_search(admissible.begin(), admissible.end(), static_cast<int>(index));
    const alf::GameState before = game.snapshot();
    const alf::StepResult first = game.step(world->command_text(index));
    require(allowed == (first.observation != "Nothing happens."),
            "the list of admissible commands and the step disagree");
    const alf::GameState after = game.snapshot();
    game.restore(alf::state_from_bytes(alf::to_bytes(before)));
    require(
        game.step(world->command_text(index)).observation == first.observation && game.snapshot() == after,
        "a restored game went another way");
  }
  require(!game.facts().empty(), "a game without facts");
  std::string bytes = alf::to_bytes(game.snapshot());
  bytes[below(random, bytes.size())] ^= static_cast<char>(1 << random() % 8);
  try {
    game.restore(alf::state_from_bytes(bytes));
    game.step("look");
  } catch (const std::invalid_argument&) {
    // a damaged state may be refused
  }
}

// Whether the loader took the game.
template <class Load>
bool try_game(Load&& load, Random& random) {
  std::shared_ptr<const alf::World> world;
  try {
    world = load();
  } catch (const spo::ParseError& error) {
    require(error.what()[0] != '\0', "a refusal without a reason");
    return false;
  }
  play(world, random);
  return true;
}

struct Seed {
  std::string file;
  std::string parts[3];  // domain, grammar, problem
};

std::size_t line_start(std::string_view text, std::size_t at) {
  const std::size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  return before == std::string_view::npos ? 0 : before + 1;
}

// The word around a position: what lies between white space and parentheses.
std::string_view word_at(std::string_view text, std::size_t at) {
  static constexpr std::string_view ends = " ()\n";
  const std::size_t before = at == 0 ? std::string_view::npos : text.find_last_of(ends, at - 1);
  const std::size_t start = before == std::string_view::npos ? 0 : before + 1;
  return text.substr(start, std::min(text.find_first_of(ends, start), text.size()) - start);
}

std::string mutate(std::string text, const std::string& other, Random& random) {
  static constexpr const char* tokens[] = {"(",
                                           ")",
                                           "((((((((",
                                           "(and",
                                           "(not",
                                           "(exists (?x - object)",
                                           "?r",
                                           " - ",
                                           "\"",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           "\\u",
                                           "\\ud800",
                                           "\xff",
                                           "0",
                                           "_bar_",
                                           "basin",
                                           ";",
                                           "#",
                                           "\"\"\"",
                                           "agent1",
                                           "inReceptacle",
                                           "holdsAny",
                                           "(holds agent1 ",
                                           "99999999999999999999"};
  for (std::size_t times = 1 + below(random, 3); times > 0; --times) {
    const std::size_t at = below(random, text.size() + 1);
    const std::size_t length = std::min(text.size() - at, std::size_t{1} << below(random, 8));
    switch (below(random, 14)) {
      case 0:
        if (at < text.size()) text[at] ^= static_cast<char>(1 << random() % 8);
        break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr(at, length)); break;
      case 3: text.insert(at, tokens[below(random, std::size(tokens))]); break;
      case 4: text.insert(at, other.substr(below(random, other.size() + 1), length)); break;
      case 5: text.resize(at); break;
      case 6: {  // a whole line, such as a fact, goes
        const std::size_t start = line_start(text, at);
        text.erase(start, std::min(text.find('\n', at), text.size()) - start);
        break;
      }
      default: {  // a word becomes one from elsewhere in the text
        const std::string word(word_at(text, below(random, text.size() + 1)));
        const std::string_view old = word_at(text, at);
        text.replace(static_cast<std::size_t>(old.data() - text.data()), old.size(), word);
      }
    }
  }
  return text;
}

#ifndef SPO_LIBFUZZER
Seed read_seed(const char* path) {
  std::ifstream file(path, std::ios::binary);
  Seed seed{{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, {}};
  const spo::Json json = spo::parse_json(seed.file, path);
  const char* names[] = {"pddl_domain", "grammar", "pddl_problem"};
  for (int i = 0; i < 3; ++i) seed.parts[i] = *json.find(names[i])->string();
  return seed;
}
#endif

}  // namespace

#ifdef SPO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Random random(size);
  try_game([&] { return alf::load_game_file({reinterpret_cast<const char*>(data), size}, "input"); }, random);
  return 0;
}
#else
int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: alfworld_fuzz RUNS SEED GAME_FILE...\n");
    return 2;
  }
  const long runs = std::atol(argv[1]);
  Random random(static_cast<std::uint64_t>(std::atoll(argv[2])));
  std::vector<Seed> seeds;
  for (int i = 3; i < argc; ++i) {
    seeds.push_back(read_seed(argv[i]));
    require(try_game([&] { return alf::load_game_file(seeds.back().file, argv[i]); }, random),
            "a seed was refused");
  }
  long accepted = 0;
  for (long run = 0; run < runs; ++run) {
    const Seed &seed = seeds[below(random, seeds.size())], &other = seeds[below(random, seeds.size())];
    const std::size_t target =
        below(random, 10);  // mostly the problem: the rest must match the supported text
    if (target == 0) {
      const std::string file = mutate(seed.file, other.file, random);
      accepted += try_game([&] { return alf::load_game_file(file, "mutant"); }, random);
      continue;
    }
    const std::size_t part = target <= 2 ? target - 1 : 2;
    std::string parts[3] = {seed.parts[0], seed.parts[1], seed.parts[2]};
    parts[part] = mutate(parts[part], other.parts[part], random);
    accepted += try_game(
        [&] { return std::make_shared<const alf::World>(parts[0], parts[1], parts[2], "mutant"); }, random);
  }
  std::printf("%ld mutants: %ld played, %ld refused\n", runs, accepted, runs - accepted);
  return 0;
}
#endif
