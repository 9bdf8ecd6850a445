#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <unordered_set>

#include "bindings.hpp"
#include "spo/alfworld_batch.hpp"
#include "spo/alfworld_file.hpp"

namespace py = pybind11;
namespace alf = spo::alfworld;

namespace {

py::bytes bytes_of(const spo::Hash128& hash) {
  return py::bytes(reinterpret_cast<const char*>(hash.data()), hash.size());
}

py::str str_of(std::string_view text) { return py::str(text.data(), text.size()); }

// A loaded game and the Python strings that its infos share.
class LoadedGame {
 public:
  LoadedGame(std::shared_ptr<const alf::World> world, py::str gamefile)
      : world(std::move(world)), gamefile(std::move(gamefile)), commands_(this->world->command_count()) {}

  const std::shared_ptr<const alf::World> world;
  const py::str gamefile;

  py::dict info(const alf::BatchStep& step) {
    py::list admissible(step.admissible.size());
    for (std::size_t i = 0; i < step.admissible.size(); ++i) {
      const auto index = static_cast<std::size_t>(step.admissible[i]);
      if (!commands_[index]) commands_[index] = str_of(world->command_text(index));
      admissible[i] = commands_[index];
    }
    py::dict out;
    out[admissible_key()] = std::move(admissible);
    out[won_key()] = py::bool_(step.step.won);
    out[gamefile_key()] = gamefile;
    return out;
  }

 private:
  // Interned once: an info is made at every step.
  static const py::str& admissible_key() {
    static const py::str& key = *new py::str("admissible_commands");
    return key;
  }
  static const py::str& won_key() {
    static const py::str& key = *new py::str("won");
    return key;
  }
  static const py::str& gamefile_key() {
    static const py::str& key = *new py::str("gamefile");
    return key;
  }

  std::vector<py::object> commands_;
};

class PyGame {
 public:
  PyGame(std::shared_ptr<LoadedGame> loaded, std::optional<std::int64_t> max_steps)
      : loaded(std::move(loaded)), game(this->loaded->world, max_steps.value_or(-1)) {
    if (max_steps && *max_steps < 1)
      throw py::value_error("max_steps must be at least 1, or None for no limit; got " +
                            std::to_string(*max_steps));
  }
  PyGame(PyGame& other) : loaded(other.loaded), game(loaded->world, other.game.max_steps()) {
    const alf::Claim claim(other.game);
    game.restore(other.game.snapshot());
  }

  const std::shared_ptr<LoadedGame> loaded;
  alf::Game game;
};

// The text of a str, valid as long as it lives. A lone surrogate has no UTF-8; no command contains the byte
// that stands for such a text.
std::string_view text_of(py::handle command) {
  if (!PyUnicode_Check(command.ptr()))
    throw py::type_error("a command must be a str, got " + std::string(py::str(py::type::of(command))));
  Py_ssize_t size = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(command.ptr(), &size))
    return {text, static_cast<std::size_t>(size)};
  PyErr_Clear();
  return "\xff";
}

py::tuple step_tuple(PyGame& game, const alf::BatchStep& result) {
  const alf::StepResult& step = result.step;
  return py::make_tuple(str_of(step.observation), step.won ? 1.0 : 0.0, step.won, step.truncated,
                        game.loaded->info(result));
}

class PyBatch {
 public:
  PyBatch(const py::iterable& games, std::size_t threads) : threads_(threads) {
    std::unordered_set<PyGame*> seen;
    for (const py::handle item : games) {
      PyGame& game = item.cast<PyGame&>();
      if (!seen.insert(&game).second)
        throw py::value_error("games[" + std::to_string(games_.size()) +
                              "] is in the batch twice; copy() a game to play it twice at once");
      objects_.append(item);
      games_.push_back(&game);
      cores_.push_back(&game.game);
    }
  }

  std::size_t size() const { return games_.size(); }
  const py::list& games() const { return objects_; }

  py::tuple reset() {
    const std::vector<alf::BatchStep> results = play([&] { return alf::reset_all(cores_, threads_); });
    py::list observations(size()), infos(size());
    for (std::size_t i = 0; i < size(); ++i) {
      observations[i] = str_of(results[i].step.observation);
      infos[i] = games_[i]->loaded->info(results[i]);
    }
    return py::make_tuple(observations, infos);
  }

  py::tuple step(const py::sequence& commands) {
    const py::tuple kept(commands);  // the caller's list may change while the GIL is released
    if (kept.size() != size())
      throw py::value_error("expected " + std::to_string(size()) + " commands, one a game, got " +
                            std::to_string(kept.size()));
    std::vector<std::string_view> texts;
    for (const py::handle command : kept) texts.push_back(text_of(command));
    const std::vector<alf::BatchStep> results = play([&] { return alf::step_all(cores_, texts, threads_); });
    py::list observations(size()), rewards(size()), terminated(size()), truncated(size()), infos(size());
    for (std::size_t i = 0; i < size(); ++i) {
      const alf::StepResult& step = results[i].step;
      observations[i] = str_of(step.observation);
      rewards[i] = py::float_(step.won ? 1.0 : 0.0);
      terminated[i] = py::bool_(step.won);
      truncated[i] = py::bool_(step.truncated);
      infos[i] = games_[i]->loaded->info(results[i]);
    }
    return py::make_tuple(observations, rewards, terminated, truncated, infos);
  }

 private:
  template <class F>
  std::vector<alf::BatchStep> play(F&& run) {
    const alf::Claim claim(cores_);
    const py::gil_scoped_release release;
    return run();
  }

  std::size_t threads_;
  py::list objects_;
  std::vector<PyGame*> games_;
  std::vector<alf::Game*> cores_;
};

py::list predicate_names(const std::vector<alf::Predicate>& predicates) {
  py::list out;
  for (const alf::Predicate p : predicates) out.append(str_of(alf::signature(p).name));
  return out;
}

py::dict goal_of(const LoadedGame& loaded) {
  const alf::World& world = *loaded.world;
  const alf::Goal& goal = world.goal;
  const bool light = goal.task == alf::Task::light;
  py::dict out;
  out["task_type"] = str_of(alf::task_type_name(goal.task));
  out["object_type"] = world.entities[goal.object_type].id;
  out["receptacle_type"] =
      light ? py::object(py::none()) : py::object(py::str(world.entities[goal.receptacle_type].id));
  out["lamp_type"] = light ? py::object(py::str(world.entities[goal.lamp_type].id)) : py::object(py::none());
  out["conditions"] = predicate_names(goal.conditions);
  return out;
}

py::dict entities_of(const LoadedGame& loaded) {
  py::dict out;
  for (const alf::Entity& entity : loaded.world->entities) out[py::str(entity.id)] = entity.name;
  return out;
}

py::list facts_of(PyGame& game) {
  const alf::Claim claim(game.game);
  const alf::World& world = game.game.world();
  py::list out;
  for (const alf::Fact& fact : game.game.facts()) {
    const alf::Signature& form = alf::signature(fact.predicate);
    const py::str name = str_of(form.name), first = world.entities[fact.first].id;
    if (form.arity == 1) out.append(py::make_tuple(name, first));
    else out.append(py::make_tuple(name, first, world.entities[fact.second].id));
  }
  return out;
}

}  // namespace

void bind_alfworld(py::module_& m) {
  py::class_<alf::GameState>(
      m, "GameState",
      "A complete snapshot of a running game: equal states answer all commands alike. Picklable, hashable.")
      .def(
          "__eq__", [](const alf::GameState& a, const alf::GameState& b) { return a == b; },
          py::is_operator())
      .def("__hash__", [](const alf::GameState& state) { return py::hash(py::bytes(alf::to_bytes(state))); })
      .def(py::pickle([](const alf::GameState& state) { return py::bytes(alf::to_bytes(state)); },
                      [](const py::bytes& bytes) { return alf::state_from_bytes(std::string_view(bytes)); }));

  py::class_<LoadedGame, std::shared_ptr<LoadedGame>>(m, "AlfworldWorld",
                                                      "A loaded game: what playing it does not change.")
      .def(py::init([](const py::bytes& domain, const py::bytes& grammar, const py::bytes& problem,
                       const std::string& where, py::str gamefile) {
             return std::make_shared<LoadedGame>(
                 std::make_shared<const alf::World>(std::string_view(domain), std::string_view(grammar),
                                                    std::string_view(problem), where),
                 std::move(gamefile));
           }),
           py::arg("domain"), py::arg("grammar"), py::arg("problem"), py::arg("where"), py::arg("gamefile"))
      .def_static(
          "from_file",
          [](const py::bytes& content, const std::string& where, py::str gamefile) {
            return std::make_shared<LoadedGame>(alf::load_game_file(std::string_view(content), where),
                                                std::move(gamefile));
          },
          py::arg("content"), py::arg("where"), py::arg("gamefile"))
      .def_property_readonly("task", [](const LoadedGame& loaded) { return loaded.world->task; })
      .def_property_readonly("identity",
                             [](const LoadedGame& loaded) { return bytes_of(loaded.world->identity); })
      .def_property_readonly("goal", &goal_of)
      .def_property_readonly("entities", &entities_of)
      .def_readonly("gamefile", &LoadedGame::gamefile);

  py::class_<PyGame>(m, "AlfworldGame", "A running game.")
      .def(py::init<std::shared_ptr<LoadedGame>, std::optional<std::int64_t>>(), py::arg("world"),
           py::arg("max_steps"))
      .def(py::init([](PyGame& other) { return std::make_unique<PyGame>(other); }), py::arg("other"))
      .def_property_readonly("world", [](const PyGame& game) { return game.loaded; })
      .def_property_readonly("max_steps",
                             [](const PyGame& game) {
                               return game.game.max_steps() < 0 ? std::nullopt
                                                                : std::optional(game.game.max_steps());
                             })
      .def_property_readonly("steps", [](const PyGame& game) { return game.game.steps(); })
      .def("reset",
           [](PyGame& game) {
             const alf::Claim claim(game.game);
             const alf::BatchStep result = alf::reset_all({&game.game}, 1)[0];
             return py::make_tuple(str_of(result.step.observation), game.loaded->info(result));
           })
      .def(
          "step",
          [](PyGame& game, const py::object& command) {
            const std::string_view text = text_of(command);
            const alf::Claim claim(game.game);
            return step_tuple(game, alf::step_all({&game.game}, {text}, 1)[0]);
          },
          py::arg("command"))
      .def("snapshot",
           [](PyGame& game) {
             const alf::Claim claim(game.game);
             return game.game.snapshot();
           })
      .def(
          "restore",
          [](PyGame& game, const alf::GameState& state) {
            const alf::Claim claim(game.game);
            game.game.restore(state);
          },
          py::arg("state"))
      .def_property_readonly("state_key",
                             [](PyGame& game) {
                               const alf::Claim claim(game.game);
                               return bytes_of(game.game.state_key());
                             })
      .def("facts", &facts_of);

  py::class_<PyBatch>(m, "AlfworldBatch", "Plays several games at once.")
      .def(py::init<const py::iterable&, std::size_t>(), py::arg("games"), py::arg("threads") = 1)
      .def("__len__", &PyBatch::size)
      .def_property_readonly("games", [](const PyBatch& batch) { return batch.games(); })
      .def("reset", &PyBatch::reset)
      .def("step", &PyBatch::step, py::arg("commands"));
}
