#include <algorithm>
#include <stdexcept>

#include "spo/alfworld_game.hpp"

namespace spo::alfworld {
namespace {

constexpr std::string_view state_magic = "SPOALF01";

void append_word(std::string& out, std::uint64_t word) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(word >> shift & 0xFF);
}

std::uint64_t read_word(std::string_view bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < 8; ++i)
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return word;
}

// Whether the bit set has no bit beyond its size.
bool within(const std::uint64_t* words, std::size_t bits) {
  return bits % 64 == 0 || (words[bits / 64] >> (bits % 64)) == 0;
}

bool is_consistent(const World& world, const std::vector<std::uint64_t>& words) {
  const Layout& layout = world.layout;
  if (words.size() != layout.total) return false;
  const std::size_t objects = world.objects.size();
  bool ok = words[layout.steps] >> 62 == 0 && words[layout.here] < world.locations.size() &&
            words[layout.held] <= objects;
  ok = ok && within(&words[layout.checked], world.entities.size()) &&
       within(&words[layout.opened], world.receptacles.size());
  if (objects == 0) return ok;
  for (const std::size_t set :
       {layout.on, layout.clean, layout.hot, layout.cool, layout.toggled, layout.sliced})
    ok = ok && within(&words[set], objects);
  for (std::size_t r = 0; r < world.receptacles.size(); ++r)
    ok = ok && within(&words[layout.taken + r * layout.row], objects) &&
         within(&words[layout.in + r * layout.row], objects);
  for (std::size_t l = 0; l < world.locations.size(); ++l)
    ok = ok && within(&words[layout.object_at + l * layout.row], objects);
  return ok;
}

}  // namespace

std::string to_bytes(const GameState& state) {
  std::string out(state_magic);
  out.append(reinterpret_cast<const char*>(state.world.data()), state.world.size());
  for (const std::uint64_t word : state.words) append_word(out, word);
  return out;
}

GameState state_from_bytes(std::string_view bytes) {
  const std::size_t head = state_magic.size() + sizeof(Hash128);
  if (bytes.size() < head || bytes.size() % 8 != 0 || !bytes.starts_with(state_magic))
    throw std::invalid_argument("these bytes are not a saved GameState of this version");
  GameState state;
  std::copy_n(bytes.data() + state_magic.size(), state.world.size(),
              reinterpret_cast<char*>(state.world.data()));
  for (std::size_t i = head; i < bytes.size(); i += 8) state.words.push_back(read_word(bytes.substr(i, 8)));
  return state;
}

void Game::restore(const GameState& state) {
  if (state.world != world_->identity) throw std::invalid_argument("the state belongs to another game");
  if (!is_consistent(*world_, state.words))
    throw std::invalid_argument("the state is damaged: it does not fit its game");
  words_ = state.words;
  won_ = goal_holds();
}

Hash128 Game::state_key() const {
  std::string bytes(reinterpret_cast<const char*>(world_->identity.data()), world_->identity.size());
  bytes.reserve(bytes.size() + 8 * (world_->layout.total - world_->layout.key));
  for (std::size_t i = world_->layout.key; i < world_->layout.total; ++i) append_word(bytes, words_[i]);
  return hash128(bytes);
}

std::vector<Fact> Game::facts() const {
  const World& world = *world_;
  const Layout& layout = world.layout;
  std::vector<Fact> out = world.static_facts;
  out.push_back({Predicate::at_location, world.agent, world.locations[here()]});
  if (held() >= 0) {
    out.push_back({Predicate::holds, world.agent, world.objects[static_cast<std::size_t>(held())]});
    out.push_back({Predicate::holds_any, world.agent});
  }
  const auto object_set = [&](Predicate predicate, std::size_t part) {
    for_each_bit(at(part), layout.row, [&](std::size_t o) { out.push_back({predicate, world.objects[o]}); });
  };
  object_set(Predicate::is_clean, layout.clean);
  object_set(Predicate::is_hot, layout.hot);
  object_set(Predicate::is_cool, layout.cool);
  object_set(Predicate::is_on, layout.on);
  object_set(Predicate::is_toggled, layout.toggled);
  object_set(Predicate::is_sliced, layout.sliced);
  for_each_bit(at(layout.opened), words_for(world.receptacles.size()),
               [&](std::size_t r) { out.push_back({Predicate::opened, world.receptacles[r]}); });
  for_each_bit(at(layout.checked), words_for(world.entities.size()),
               [&](std::size_t e) { out.push_back({Predicate::checked, static_cast<Index>(e)}); });
  for (std::size_t r = 0; r < world.receptacles.size(); ++r)
    for_each_bit(contents(r), layout.row, [&](std::size_t o) {
      out.push_back({Predicate::in_receptacle, world.objects[o], world.receptacles[r]});
    });
  for (std::size_t l = 0; l < world.locations.size(); ++l)
    for_each_bit(objects_at(l), layout.row, [&](std::size_t o) {
      out.push_back({Predicate::object_at_location, world.objects[o], world.locations[l]});
    });
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace spo::alfworld
