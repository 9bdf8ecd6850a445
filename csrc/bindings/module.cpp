// The Python extension spo_fast._core: one bind_* function a topic, each in a file of its own.
#include "bindings.hpp"

PYBIND11_MODULE(_core, m) {
  m.doc() = "Compiled core of spo_fast.";
  bind_trackers(m);
  bind_alfworld(m);
  bind_state_table(m);
  bind_kernels(m);
}
