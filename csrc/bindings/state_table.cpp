// Lists of str or bytes in, arrays out; texts are hashed where they lie, without the GIL.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "spo/state_table.hpp"

namespace py = pybind11;

namespace {

using spo::StateTable;
using Ints = py::array_t<std::int64_t, py::array::c_style>;
using Bools = py::array_t<bool, py::array::c_style>;
using Words = py::array_t<std::uint64_t, py::array::c_style>;

std::string_view text_of(PyObject* item, const char* name, std::size_t index) {
  Py_ssize_t size = 0;
  const auto where = [&] { return std::string(name) + "[" + std::to_string(index) + "]: "; };
  if (PyUnicode_Check(item)) {
    if (const char* text = PyUnicode_AsUTF8AndSize(item, &size))
      return {text, static_cast<std::size_t>(size)};
    PyErr_Clear();
    throw py::value_error(where() + "expected a str that UTF-8 can encode, got one with a lone surrogate");
  }
  char* bytes = nullptr;
  if (PyBytes_Check(item) && PyBytes_AsStringAndSize(item, &bytes, &size) == 0)
    return {bytes, static_cast<std::size_t>(size)};
  throw py::type_error(where() + "expected str or bytes, got " + Py_TYPE(item)->tp_name);
}

// The texts of sequences. Keeps their items alive: lists may change while the GIL is released.
class Texts {
 public:
  Texts() = default;
  Texts(const py::handle& items, const char* name) { append(items, name); }

  // How many there were.
  std::size_t append(const py::handle& items, const char* name) {
    if (PyUnicode_Check(items.ptr()) || PyBytes_Check(items.ptr()) || !PySequence_Check(items.ptr()))
      throw py::type_error(std::string(name) + ": expected a list of str or bytes, got " +
                           Py_TYPE(items.ptr())->tp_name);
    py::object kept = py::reinterpret_steal<py::object>(PySequence_Tuple(items.ptr()));
    if (!kept) throw py::error_already_set();
    const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(kept.ptr()));
    for (std::size_t i = 0; i < count; ++i)
      views_.push_back(text_of(PyTuple_GET_ITEM(kept.ptr(), static_cast<Py_ssize_t>(i)), name, i));
    kept_.push_back(std::move(kept));
    return count;
  }
  void reserve(std::size_t count) { views_.reserve(count); }
  std::size_t size() const { return views_.size(); }

  std::vector<spo::Key> keys(const StateTable& table) const {
    std::vector<spo::Key> out;
    out.reserve(views_.size());
    for (const std::string_view text : views_) out.push_back(table.state_key(text));
    return out;
  }
  std::vector<spo::Key> keys_with(const Texts& actions, const StateTable& table) const {
    std::vector<spo::Key> out;
    out.reserve(views_.size());
    std::string scratch;
    for (std::size_t i = 0; i < views_.size(); ++i)
      out.push_back(table.pair_key(views_[i], actions.views_[i], scratch));
    return out;
  }

 private:
  std::vector<py::object> kept_;
  std::vector<std::string_view> views_;
};

template <class To, class From>
py::array_t<To> array_of(const std::vector<From>& values) {
  static_assert(sizeof(To) == sizeof(From));
  return py::array_t<To>(static_cast<py::ssize_t>(values.size()), reinterpret_cast<const To*>(values.data()));
}

std::vector<std::uint8_t> flags(const Bools& array) { return {array.data(), array.data() + array.size()}; }

void check_equal(std::size_t expected, const char* name, std::size_t got) {
  if (got != expected)
    throw py::value_error(std::string(name) + ": expected " + std::to_string(expected) +
                          ", one a state, got " + std::to_string(got));
}

// One call over a batch of states.
template <class Result, class Call>
py::array_t<Result> over_states(const StateTable& table, const py::handle& states, Call&& call) {
  const Texts texts(states, "states");
  const auto result = [&] {
    const py::gil_scoped_release release;
    return call(texts.keys(table));
  }();
  return array_of<Result>(result);
}

StateTable::Options options_of(double alpha, std::int64_t xi, double zeta, double omega_k, std::int64_t g_max,
                               const std::optional<std::pair<std::uint64_t, std::uint64_t>>& seed) {
  StateTable::Options options{alpha, xi, zeta, omega_k, g_max, {}};
  if (seed) options.seed = spo::HashKey{seed->first, seed->second};
  return options;
}

void update(StateTable& self, const py::sequence& trajectories, const Bools& successes) {
  const std::size_t count = py::len(trajectories);
  Texts texts;
  std::vector<std::uint64_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const py::object trajectory = trajectories[i];
    lengths.push_back(texts.append(trajectory, ("trajectories[" + std::to_string(i) + "]").c_str()));
  }
  if (static_cast<std::size_t>(successes.size()) != count)
    throw py::value_error("successes: expected " + std::to_string(count) + ", one a trajectory, got " +
                          std::to_string(successes.size()));
  const std::vector<std::uint8_t> ended_well = flags(successes);
  const py::gil_scoped_release release;
  self.update(texts.keys(self), lengths, ended_well);
}

py::array_t<double> step_rewards(StateTable& self, const py::handle& states, const py::handle& next_states,
                                 const Bools& successes) {
  const Texts texts(states, "states"), next(next_states, "next_states");
  check_equal(texts.size(), "next_states", next.size());
  check_equal(texts.size(), "successes", static_cast<std::size_t>(successes.size()));
  const std::vector<std::uint8_t> ended_well = flags(successes);
  const std::vector<double> result = [&] {
    const py::gil_scoped_release release;
    return self.step_rewards(texts.keys(self), next.keys(self), ended_well);
  }();
  return array_of<double>(result);
}

py::array_t<std::int64_t> counts(StateTable& self, const py::handle& states) {
  const Texts texts(states, "states");
  const std::vector<spo::Tally> tallies = [&] {
    const py::gil_scoped_release release;
    return self.tallies(texts.keys(self));
  }();
  py::array_t<std::int64_t> out({static_cast<py::ssize_t>(tallies.size()), py::ssize_t{2}});
  auto cells = out.mutable_unchecked<2>();
  for (py::ssize_t i = 0; i < cells.shape(0); ++i) {
    cells(i, 0) = spo::visits_of(tallies[static_cast<std::size_t>(i)]);
    cells(i, 1) = spo::successes_of(tallies[static_cast<std::size_t>(i)]);
  }
  return out;
}

template <class Call>
auto over_pairs(StateTable& self, const py::handle& states, const py::handle& actions, Call&& call) {
  const Texts first(states, "states"), second(actions, "actions");
  check_equal(first.size(), "actions", second.size());
  const py::gil_scoped_release release;
  return call(first.keys_with(second, self));
}

py::array_t<std::int64_t> group_ids(const StateTable& self, const py::handle& states, const Ints& groups) {
  const Texts texts(states, "states");
  check_equal(texts.size(), "groups", static_cast<std::size_t>(groups.size()));
  const std::vector<std::int64_t> numbers(groups.data(), groups.data() + groups.size());
  const std::vector<std::int64_t> result = [&] {
    const py::gil_scoped_release release;
    return spo::number_pairs(texts.keys(self), numbers);
  }();
  return array_of<std::int64_t>(result);
}

py::array_t<std::int64_t> visit_histogram(StateTable& self) {
  const auto states = [&] {
    const py::gil_scoped_release release;
    return self.visit_histogram();
  }();
  py::array_t<std::int64_t> out({static_cast<py::ssize_t>(states.size()), py::ssize_t{2}});
  auto cells = out.mutable_unchecked<2>();
  py::ssize_t i = 0;
  for (const auto& [visits, count] : states) {
    cells(i, 0) = visits;
    cells(i++, 1) = static_cast<std::int64_t>(count);
  }
  return out;
}

py::bytes bytes_of(const spo::Digest& digest) {
  return py::bytes(reinterpret_cast<const char*>(&digest), sizeof digest);
}

// origin, from, to, trajectories, rows [n, 3]: both words of a key, and visits + 2^32 successes.
py::tuple delta_since(StateTable& self, std::uint64_t mark) {
  const StateTable::Delta delta = [&] {
    const py::gil_scoped_release release;
    return self.delta_since(mark);
  }();
  const Words rows({static_cast<py::ssize_t>(delta.rows.size()), py::ssize_t{3}},
                   reinterpret_cast<const std::uint64_t*>(delta.rows.data()));
  return py::make_tuple(bytes_of(delta.origin), delta.from, delta.to, delta.trajectories, rows);
}

bool merge_delta(StateTable& self, const StateTable::Options& options, const std::string& origin,
                 std::uint64_t from, std::uint64_t to, std::uint64_t trajectories, const Words& rows) {
  StateTable::Delta delta{{}, from, to, trajectories, options, {}};
  if (origin.size() != sizeof delta.origin) throw py::value_error("origin: expected 16 bytes");
  if (rows.ndim() != 2 || rows.shape(1) != 3) throw py::value_error("rows: expected shape [n, 3]");
  std::memcpy(&delta.origin, origin.data(), sizeof delta.origin);
  const auto* first = reinterpret_cast<const spo::SegmentMap::Row*>(rows.data());
  delta.rows.assign(first, first + rows.shape(0));
  const py::gil_scoped_release release;
  return self.merge(delta);
}

void raise_os_error(const std::system_error& error) {
  errno = error.code().value();
  const py::object arguments = py::make_tuple(error.code().value(), error.what());
  PyErr_SetObject(PyExc_OSError, arguments.ptr());
}

}  // namespace

void bind_state_table(py::module_& m) {
  py::register_local_exception_translator([](std::exception_ptr caught) {
    try {
      if (caught) std::rethrow_exception(caught);
    } catch (const std::system_error& error) {
      raise_os_error(error);
    }
  });

  m.def("hash128", [](const std::string& bytes) { return bytes_of(spo::digest128(bytes)); });
  m.def("hash128", [](const std::string& bytes, std::uint64_t first, std::uint64_t second) {
    return bytes_of(spo::keyed_digest128(bytes, {first, second}));
  });

  py::class_<StateTable::Options>(m, "StateOptions")
      .def(py::init(&options_of), py::arg("alpha"), py::arg("xi"), py::arg("zeta"), py::arg("omega_k"),
           py::arg("g_max"), py::arg("seed"))
      .def_readonly("alpha", &StateTable::Options::alpha)
      .def_readonly("xi", &StateTable::Options::xi)
      .def_readonly("zeta", &StateTable::Options::zeta)
      .def_readonly("omega_k", &StateTable::Options::omega_k)
      .def_readonly("g_max", &StateTable::Options::g_max)
      .def_property_readonly("seed", [](const StateTable::Options& options) {
        std::optional<std::pair<std::uint64_t, std::uint64_t>> seed;
        if (options.seed) seed = {options.seed->a, options.seed->b};
        return seed;
      });

  py::class_<StateTable>(m, "StateTable", "Statistics of states; see spo_fast.StateTable.")
      .def(py::init<const StateTable::Options&, std::uint64_t>(), py::arg("options"), py::arg("capacity"))
      .def(py::init<const StateTable::Options&, std::uint64_t, const std::string&>(), py::arg("options"),
           py::arg("capacity"), py::arg("path"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &StateTable::options, py::return_value_policy::copy)
      .def_property_readonly("t", &StateTable::t)
      .def_property_readonly("nbytes", &StateTable::bytes)
      .def_property_readonly("origin", [](const StateTable& self) { return bytes_of(self.origin()); })
      .def_property_readonly("mark", &StateTable::mark)
      .def("__len__", &StateTable::size, py::call_guard<py::gil_scoped_release>())
      .def("update", &update)
      .def("scores",
           [](StateTable& self, const py::handle& states) {
             return over_states<double>(self, states, [&](const auto& keys) { return self.scores(keys); });
           })
      .def("rollout_counts",
           [](StateTable& self, const py::handle& states) {
             return over_states<std::int64_t>(self, states,
                                              [&](const auto& keys) { return self.rollout_counts(keys); });
           })
      .def("novelty_weights",
           [](StateTable& self, const py::handle& states) {
             return over_states<double>(self, states,
                                        [&](const auto& keys) { return self.novelty_weights(keys); });
           })
      .def("step_rewards", &step_rewards)
      .def("counts", &counts)
      .def("mark_explored",
           [](StateTable& self, const py::handle& states, const py::handle& actions) {
             over_pairs(self, states, actions, [&](const auto& pairs) { self.mark_explored(pairs); });
           })
      .def("is_explored",
           [](StateTable& self, const py::handle& states, const py::handle& actions) {
             return array_of<bool>(over_pairs(self, states, actions,
                                              [&](const auto& pairs) { return self.are_explored(pairs); }));
           })
      .def("group_ids", &group_ids)
      .def("visit_histogram", &visit_histogram)
      .def("l1_coverage", &StateTable::l1_coverage, py::call_guard<py::gil_scoped_release>())
      .def("delta_since", &delta_since)
      .def("merge_delta", &merge_delta)
      .def("merge_table", py::overload_cast<StateTable&>(&StateTable::merge),
           py::call_guard<py::gil_scoped_release>())
      .def("write", &StateTable::write, py::call_guard<py::gil_scoped_release>())
      .def_static("read", &StateTable::read, py::call_guard<py::gil_scoped_release>());
}
