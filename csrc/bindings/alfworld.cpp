#include "bindings.hpp"

void bind_alfworld(pybind11::module_&) {}
