// Arrays in, arrays out; every rule is the core's.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "spo/prompt_tracker.hpp"
#include "spo/receipt_order_tracker.hpp"

namespace py = pybind11;

namespace {

using Ints = py::array_t<std::int64_t, py::array::c_style>;
using Floats = py::array_t<double, py::array::c_style>;

template <typename T>
std::span<const T> view(const py::array_t<T, py::array::c_style>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

template <typename T>
py::array_t<T> array_of(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

py::array_t<double> pairs_of(const std::vector<double>& values) {
  return array_of(values).reshape({static_cast<py::ssize_t>(values.size() / 2), py::ssize_t{2}});
}

// A state crosses as columns: evidence [n, 4] as alpha.hi, alpha.lo, beta.hi, beta.lo.
py::dict columns(const spo::PromptTracker& tracker) {
  const spo::PromptTracker::State state = tracker.state();
  std::vector<double> evidence, values;
  std::vector<std::int64_t> reference, task, dispatched;
  for (const auto& t : state.tasks) {
    evidence.insert(evidence.end(), {t.alpha.hi, t.alpha.lo, t.beta.hi, t.beta.lo});
    reference.push_back(t.reference);
  }
  for (const auto& r : state.requests) {
    task.push_back(r.task);
    dispatched.push_back(r.dispatched);
    values.push_back(r.value);
  }
  py::dict out;
  out["rho"] = state.rho;
  out["publishes"] = state.publishes;
  out["next_ticket"] = state.next_ticket;
  out["evidence"] =
      array_of(evidence).reshape({static_cast<py::ssize_t>(state.tasks.size()), py::ssize_t{4}});
  out["reference"] = array_of(reference);
  out["tickets"] = array_of(state.tickets);
  out["ticket_task"] = array_of(task);
  out["ticket_dispatched"] = array_of(dispatched);
  out["ticket_value"] = array_of(values);
  return out;
}

spo::PromptTracker from_columns(double rho, std::int64_t publishes, std::int64_t next_ticket,
                                const Floats& evidence, const Ints& reference, const Ints& tickets,
                                const Ints& ticket_task, const Ints& ticket_dispatched,
                                const Floats& ticket_value) {
  const auto e = view(evidence);
  const auto k = view(reference);
  const auto task = view(ticket_task), dispatched = view(ticket_dispatched);
  const auto value = view(ticket_value);
  if (e.size() != 4 * k.size()) throw std::invalid_argument("evidence: expected 4 numbers a task");
  if (task.size() != dispatched.size() || task.size() != value.size()) {
    throw std::invalid_argument("ticket columns: expected equal lengths");
  }
  spo::PromptTracker::State state{rho, publishes, next_ticket, {}, {}, {}};
  for (std::size_t i = 0; i < k.size(); ++i) {
    state.tasks.push_back({{e[4 * i], e[4 * i + 1]}, {e[4 * i + 2], e[4 * i + 3]}, k[i]});
  }
  state.tickets.assign(view(tickets).begin(), view(tickets).end());
  for (std::size_t i = 0; i < task.size(); ++i) state.requests.push_back({task[i], dispatched[i], value[i]});
  return spo::PromptTracker(state);
}

spo::ReceiptOrderTracker from_evidence(double rho_min, double rho_max, double d_half,
                                       const Floats& evidence) {
  const auto e = view(evidence);
  std::vector<spo::Prior> tasks;
  for (std::size_t i = 0; i + 1 < e.size(); i += 2) tasks.push_back({e[i], e[i + 1]});
  return spo::ReceiptOrderTracker(rho_min, rho_max, d_half, std::move(tasks));
}

}  // namespace

void bind_trackers(py::module_& m) {
  py::class_<spo::PromptTracker>(m, "PromptTracker",
                                 "Event-time evidence over task indices; see spo_fast.PromptTracker.")
      .def(py::init<double>(), py::arg("rho"))
      .def_property_readonly("rho", &spo::PromptTracker::rho)
      .def_property_readonly("publishes", &spo::PromptTracker::publishes)
      .def_property_readonly("in_flight", &spo::PromptTracker::in_flight)
      .def("__len__", &spo::PromptTracker::size)
      .def("register",
           [](spo::PromptTracker& self, const Floats& successes, const Floats& trials, const Floats& mass) {
             self.register_tasks(view(successes), view(trials), view(mass));
           })
      .def("dispatch",
           [](spo::PromptTracker& self, const Ints& tasks) { return array_of(self.dispatch(view(tasks))); })
      .def("complete",
           [](spo::PromptTracker& self, const Ints& tickets, const Floats& outcomes) {
             return array_of(self.complete(view(tickets), view(outcomes)));
           })
      .def("cancel", [](spo::PromptTracker& self, const Ints& tickets) { self.cancel(view(tickets)); })
      .def("publish", &spo::PromptTracker::publish, py::arg("times"))
      .def("values", [](const spo::PromptTracker& self,
                        const Ints& tasks) { return array_of(self.values(view(tasks))); })
      .def("evidence", [](const spo::PromptTracker& self,
                          const Ints& tasks) { return pairs_of(self.evidence(view(tasks))); })
      .def("columns", &columns)
      .def_static("from_columns", &from_columns, py::arg("rho"), py::arg("publishes"), py::arg("next_ticket"),
                  py::arg("evidence"), py::arg("reference"), py::arg("tickets"), py::arg("ticket_task"),
                  py::arg("ticket_dispatched"), py::arg("ticket_value"));

  py::class_<spo::ReceiptOrderTracker>(
      m, "ReceiptOrderTracker", "Receipt-order evidence over task indices; see spo_fast.ReceiptOrderTracker.")
      .def(py::init<double, double, double>(), py::arg("rho_min"), py::arg("rho_max"), py::arg("d_half"))
      .def_property_readonly("rho_min", &spo::ReceiptOrderTracker::rho_min)
      .def_property_readonly("rho_max", &spo::ReceiptOrderTracker::rho_max)
      .def_property_readonly("d_half", &spo::ReceiptOrderTracker::d_half)
      .def("__len__", &spo::ReceiptOrderTracker::size)
      .def("register",
           [](spo::ReceiptOrderTracker& self, const Floats& successes, const Floats& trials,
              const Floats& mass) { self.register_tasks(view(successes), view(trials), view(mass)); })
      .def(
          "update",
          [](spo::ReceiptOrderTracker& self, const Ints& tasks, const Floats& outcomes, const Floats& drift) {
            return array_of(self.update(view(tasks), view(outcomes), view(drift)));
          })
      .def("values", [](const spo::ReceiptOrderTracker& self,
                        const Ints& tasks) { return array_of(self.values(view(tasks))); })
      .def("evidence", [](const spo::ReceiptOrderTracker& self,
                          const Ints& tasks) { return pairs_of(self.evidence(view(tasks))); })
      .def_static("from_evidence", &from_evidence, py::arg("rho_min"), py::arg("rho_max"), py::arg("d_half"),
                  py::arg("evidence"));
}
