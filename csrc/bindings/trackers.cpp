#include "bindings.hpp"

void bind_trackers(pybind11::module_&) {}
